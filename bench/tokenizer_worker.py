"""The Python programs of bench/tokenizers.py: tokenizer_worker.py PROGRAM VOCABULARY FILES, where PROGRAM is tiktoken, hf
(Hugging Face's tokenizers), tally or quicktok, and FILES what tokenizer_vocabularies.py prepared (for tiktoken: the folder
of the published files; for tally: the path it loads).

Commands and answers are those of tokenizer_worker.h. Texts are str objects before the clock starts; ids are those of each
program's fastest call that gives them to Python.
"""
import json
import os
import pathlib
import struct
import sys
import time

import numpy
import xxhash

sys.path.append(sys.path.pop(0))  # this folder, which has a file tokenizers.py, behind the packages


class Tiktoken:
    def __init__(self, vocabulary, files):
        import tokenizer_vocabularies
        self.encoding = tokenizer_vocabularies.tiktoken_encoding(pathlib.Path(files), vocabulary)

    def encode(self, texts, threads):
        if threads == 1:
            return [self.encoding.encode_to_numpy(text, disallowed_special=()) for text in texts]
        return self.encoding.encode_ordinary_batch(texts, num_threads=threads)

    def ids_to_decode(self, ids):
        return ids.tolist()

    def decode(self, ids):
        return self.encoding.decode_bytes(ids)

    def characters(self, expression, text):
        """Those that the expression matches: text between matches is not encoded."""
        import tiktoken
        probe = tiktoken.Encoding("probe", pat_str=expression, mergeable_ranks={bytes([b]): b for b in range(256)},
                                  special_tokens={})
        return probe.decode(probe.encode_ordinary(text))


class HuggingFace:
    def __init__(self, vocabulary, files):
        import tokenizers
        self.tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(files) / f"{vocabulary}.json"))
        # Texts are ordinary text for all; an encoding of them may not hold the special token.
        self.tokenizer.encode_special_tokens = True

    def encode(self, texts, threads):
        os.environ["TOKENIZERS_PARALLELISM"] = "false" if threads == 1 else "true"
        return [e.ids for e in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def ids_to_decode(self, ids):
        return ids.tolist()

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False).encode()

    def characters(self, expression, text):
        import tokenizers
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), "removed", invert=True)
        return "".join(piece for piece, _ in split.pre_tokenize_str(text))


class Tally:
    def __init__(self, vocabulary, files):
        import tally
        self.tokenizer = tally.Tokenizer.from_file(files)

    def encode(self, texts, threads):
        if threads == 1:
            return [self.tokenizer.encode_to_numpy(text, disallowed_special=()) for text in texts]
        return self.tokenizer.encode_batch(texts, disallowed_special=(), num_threads=threads)

    def ids_to_decode(self, ids):
        return ids

    def decode(self, ids):
        return self.tokenizer.decode_bytes(ids)


class Quicktok:
    def __init__(self, vocabulary, files):
        import quicktok
        self.encoding = quicktok.get_encoding(f"{vocabulary}_base")

    def encode(self, texts, threads):
        return [self.encoding.encode_to_numpy(text) for text in texts]

    def ids_to_decode(self, ids):
        return ids

    def decode(self, ids):
        return self.encoding.decode_bytes(ids)


def status_bytes(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024


# What the patterns ask of a character. The names are those of tokenizer_worker.cpp.
CLASSES = {"letter": r"\p{L}", "number": r"\p{N}", "space": r"\s",
           "upper": r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", "lower": r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"}


def runs(characters):
    found = []
    for point in map(ord, characters):
        if found and found[-1] == point - 1:
            found[-1] = point
        else:
            found += [point, point]
    return found


def joined(found):
    return numpy.concatenate([numpy.asarray(ids, dtype="<u4") for ids in found]) if found else numpy.zeros(0, "<u4")


class Worker:
    def __init__(self, coder):
        self.coder, self.texts = coder, []

    def documents(self, text, ends):
        data, table = pathlib.Path(text).read_bytes(), pathlib.Path(ends).read_bytes()
        at = [0, *struct.unpack(f"<{len(table) // 8}Q", table)]
        self.texts = [data[a:b].decode() for a, b in zip(at, at[1:])]
        return {"documents": len(self.texts)}

    def encode(self, first, last, threads):
        texts = self.texts[int(first):int(last)]
        start = time.perf_counter()
        found = self.coder.encode(texts, int(threads))
        return self.encoded(time.perf_counter() - start, found)

    def decode(self, first, last):
        ids = self.coder.ids_to_decode(joined(self.coder.encode(self.texts[int(first):int(last)], 1)))
        start = time.perf_counter()
        text = self.coder.decode(ids)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "bytes": len(text), "hash": xxhash.xxh3_128_hexdigest(text)}

    def whole(self, path):
        text = pathlib.Path(path).read_text()
        open("/proc/self/clear_refs", "w").write("5")
        before, start = status_bytes("VmRSS"), time.perf_counter()
        found = self.coder.encode([text], 1)
        seconds = time.perf_counter() - start
        return {**self.encoded(seconds, found), "grown": status_bytes("VmHWM") - before}

    def classes(self):
        """Name -> [first, last, first, last...] of the code points of a class."""
        points = [*range(0xD800), *range(0xE000, 0x110000)]
        everything = "".join(map(chr, points))
        return {name: runs(self.coder.characters(expression, everything)) for name, expression in CLASSES.items()}

    @staticmethod
    def encoded(seconds, found):
        ids = joined(found)
        return {"seconds": seconds, "tokens": len(ids), "hash": xxhash.xxh3_128_hexdigest(ids.tobytes())}


def main():
    program, vocabulary, files = sys.argv[1:]
    coder = {"tiktoken": Tiktoken, "hf": HuggingFace, "tally": Tally, "quicktok": Quicktok}[program](vocabulary, files)
    worker = Worker(coder)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        print(json.dumps(getattr(worker, command)(*words)), flush=True)


if __name__ == "__main__":
    main()
