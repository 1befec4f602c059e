"""Programs and texts of bench/tokenizers.py: processes that encode on command, documents in files."""
import json
import os
import pathlib
import struct
import subprocess

from contest import ROOT, call, say

SLICE = 10_000_000


class Died(Exception):
    """A program ended (or did not answer in time) instead of answering."""


class Program:
    """A worker process (tokenizer_worker.h, tokenizer_worker.py)."""

    def __init__(self, name, command, environment):
        self.name, self.text = name, None
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
        self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            raise Died(f"{self.name}: {errors.strip()[-2000:]}")
        return json.loads(line)

    def ask(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()
        return self.read()

    def use(self, text):
        """The documents that encode() and decode() count are those of this Text."""
        if self.text is not text:
            self.ask("documents", text.text, text.ends_file)
            self.text = text

    def encode(self, slice_, threads=1):
        return self.ask("encode", slice_[0], slice_[1], threads)

    def decode(self, slice_):
        return self.ask("decode", slice_[0], slice_[1])

    def close(self):
        self.process.kill()
        self.process.communicate()


class Programs:
    """Starts programs by name: tally, tally from python, tiktoken, hf, quicktok."""

    def __init__(self, options, folder):
        self.options, self.files = options, folder / "vocabularies"
        self.files.mkdir()
        self.ours = json.loads(call([options.peers / "bin" / "python", ROOT / "bench" / "tokenizer_vocabularies.py",
                                     options.vocabularies, self.files], {})[0])
        workers = ROOT / "build" / "peers"
        self.worker, self.quicktok_worker = workers / "tokenizer_worker", workers / "quicktok_worker"
        self.quicktok = options.quicktok or options.peers / "src" / "quicktok"
        self.has_quicktok = (self.quicktok / "build" / "libquicktok.a").exists()
        call(["cmake", "-S", ROOT / "bench", "-B", workers, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
              f"-DQUICKTOK={self.quicktok if self.has_quicktok else ''}"], {})
        call(["cmake", "--build", workers, "--target", "tokenizer_worker",
              *(["quicktok_worker"] if self.has_quicktok else [])], {})
        if not self.has_quicktok:
            say(f"{self.quicktok} is not built (tools/peers.sh builds it): quicktok takes no part")

    def names(self, vocabulary):
        quicktok = self.has_quicktok and vocabulary in ("cl100k", "o200k")
        return ["tally", "tiktoken", "hf", *(["quicktok"] if quicktok else [])]

    def start(self, name, vocabulary):
        python, worker = self.options.peers / "bin" / "python", ROOT / "bench" / "tokenizer_worker.py"
        if name == "tally":
            return Program(name, [self.worker, self.ours[vocabulary]], {})
        if name == "quicktok":
            return Program(name, [self.quicktok_worker, self.quicktok / "data", f"{vocabulary}_base"], {})
        if name == "tally from python":
            return Program(name, [python, worker, "tally", vocabulary, self.ours[vocabulary]],
                           {"PYTHONPATH": str(self.options.module)})
        files = self.options.vocabularies if name == "tiktoken" else self.files
        return Program(name, [python, worker, name, vocabulary, files], {"TOKENIZERS_PARALLELISM": "false"})


class Text:
    """Documents in a file, with where each ends, and slices of about 10 MB: [(first document, last, bytes)]."""

    def __init__(self, text, ends, most=None):
        table = pathlib.Path(ends).read_bytes()
        self.text, self.ends_file = text, ends
        self.ends = struct.unpack(f"<{len(table) // 8}Q", table)
        self.slices, first, begin = [], 0, 0
        for i, end in enumerate(self.ends):
            if end - begin >= SLICE or i + 1 == len(self.ends) or (most and end >= most):
                self.slices.append((first, i + 1, end - begin))
                first, begin = i + 1, end
            if most and end >= most:
                break

    @property
    def bytes(self):
        return sum(n for _, _, n in self.slices)

    def document(self, i):
        with open(self.text, "rb") as file:
            begin = self.ends[i - 1] if i else 0
            file.seek(begin)
            return file.read(self.ends[i] - begin)


def write_documents(folder, name, documents):
    """A Text of these byte strings."""
    end, ends = 0, []
    with open(folder / f"{name}.txt", "wb") as out:
        for document in documents:
            out.write(document)
            end += len(document)
            ends.append(end)
    (folder / f"{name}.ends").write_bytes(struct.pack(f"<{len(ends)}Q", *ends))
    return Text(folder / f"{name}.txt", folder / f"{name}.ends")


def without_points(text, points, folder):
    """The same documents without the code points on which peers' versions of Unicode differ; (Text, how many fell out)."""
    if not points:
        return text, 0
    table, left_out = {p: None for p in points}, 0

    def documents():
        nonlocal left_out
        for i in range(text.slices[-1][1]):
            data = text.document(i)
            cleaned = data.decode().translate(table).encode()
            left_out += cleaned != data
            yield cleaned

    return write_documents(folder, "cleaned", documents()), left_out
