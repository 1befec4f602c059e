"""The sections of bench/tokenizers.py but training (tokenizer_training.py). Each gives (its text for docs/benchmarks.md, what misses its bar)."""
import random
import statistics
import sys
import threading

import tokenizer_vocabularies
from contest import say
from tokenizer_programs import Died, Text, write_documents

BARS = {"tiktoken": 8, "hf": 30, "quicktok": 1}  # times faster that Tally is, on one thread
PYTHON_BAR, DECODE_BAR, THREADS_BAR = 6, 3, 1.8
DOUBLING_BAR, BYTES_BAR = 2.2, 40
SHOWN = {"hf": "HF tokenizers", "tally": "Tally", "tally from python": "Tally from Python"}


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def mixed(options, megabytes):
    return Text(options.mixed / "mixed.txt", options.mixed / "mixed.ends", megabytes * 1_000_000)


def mixed_list(options):
    """What the mixed text is made of, in a line."""
    lines = (options.mixed / "list.txt").read_text().split("\n\n")[0].splitlines()
    return "; ".join(line.split(" documents, ")[0] + " documents" for line in lines[:-1])


# ---- ids

def differing_points(programs):
    """Code points whose class is not the same for all programs, with a line a class and program."""
    classes = {}
    for name in ("tally", "tiktoken", "hf"):
        program = programs.start(name, "gpt2")
        classes[name] = {k: set().union(*(range(a, b + 1) for a, b in zip(v[::2], v[1::2])))
                         for k, v in program.ask("classes").items()}
        program.close()
    points, lines = set(), []
    for name in ("tiktoken", "hf"):
        for kind, ours in classes["tally"].items():
            surrogates = range(0xD800, 0xE000)
            differ = sorted((ours ^ classes[name][kind]) - set(surrogates))
            points.update(differ)
            if differ:
                lines.append(f"{SHOWN.get(name, name)}, {kind}: {ranges(differ)}")
    return points, lines


def ranges(points):
    found = []
    for p in points:
        if found and found[-1][1] == p - 1:
            found[-1][1] = p
        else:
            found.append([p, p])
    return ", ".join(f"U+{a:04X}" + (f"-{b:04X}" if b > a else "") for a, b in found)


def first_difference(one, other, slice_):
    """The first document of the slice on which two programs differ."""
    first, last, _ = slice_
    while last - first > 1:
        middle = (first + last) // 2
        same = one.encode((first, middle))["hash"] == other.encode((first, middle))["hash"]
        first, last = (middle, last) if same else (first, middle)
    return first


def check_equal(programs, text, vocabulary, slice_, answers):
    """Ends the program when a peer's ids are not ours."""
    ours = next(p for p in programs if p.name == "tally")
    for p in programs:
        if answers[p.name]["hash"] != answers["tally"]["hash"]:
            i = first_difference(ours, p, slice_)
            sys.exit(f"{vocabulary}: Tally and {p.name} differ on document {i} of {text.text}: {text.document(i)[:400]!r}")


def fuzz_strings(options, points, corpus):
    """Random strings: characters of every kind, pieces of words, runs, and mixtures."""
    rng = random.Random(options.seed)
    banned = points | set(range(0xD800, 0xE000))
    pools = [" \t\n\r\v\f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u180e\u200b\ufeff\x1c\x1f", "0123456789٣५²½Ⅷ一",
             "'sStTreEvVmMlLdDſK’", "!?.,;:-_/\\()[]{}<>@#$%^&*+=~`|\"'", "abcxyzABCXYZ", "äöüßÀÉÎŒœñçДжЖшЯяΑβΓδअकिাงก่あアー漢字한글אבعربي",
             "ǅǈʰˠªº\u0301\u0308\u093e\u20dd\u0903", "😀🙃👩\u200d👩🏽🇩🇪☺\ufe0f", "<|endoftext|>"]
    words = [w for w in corpus.split(" ") if w][:200_000]
    for _ in range(options.fuzz):
        parts = []
        for _ in range(rng.choice((1, 2, 3, 5, 8, 13))):
            kind = rng.randrange(len(pools) + 5)
            if kind < len(pools):
                parts.append("".join(rng.choices(pools[kind], k=rng.choice((1, 1, 2, 3, 4, 9)))))
            elif kind == len(pools):
                parts.append(rng.choice(pools[rng.randrange(len(pools))]) * rng.choice((2, 3, 4, 7, 31, 100)))
            elif kind == len(pools) + 1:
                parts.append("".join(chr(rng.randrange(0x110000)) for _ in range(rng.choice((1, 2, 4)))))
            elif kind == len(pools) + 2:
                parts.append(chr(rng.randrange(0x3000)) * rng.choice((1, 2, 3)))
            else:
                parts.append(rng.choice(words) + rng.choice(("", " ", "\n", "'s", "\r\n\r\n", "  ")))
        yield "".join(c for c in "".join(parts) if ord(c) not in banned).encode()


def cleaned(text, points, folder, name):
    """The documents without the points given; (Text, how many were changed)."""
    gone, changed = {p: None for p in points}, 0

    def documents():
        nonlocal changed
        for i in range(text.slices[-1][1]):
            data = text.document(i)
            clean = data.decode().translate(gone).encode()
            changed += clean != data
            yield clean

    return write_documents(folder, name, documents()), changed


def corpus_documents(folder):
    """Every file of a folder; what is not UTF-8 becomes U+FFFD, since the peers take str."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        yield path.read_bytes().decode("utf-8", "replace").encode()


def ids(options, programs, folder):
    points, lines = differing_points(programs)
    say("\n".join(["classes that differ:", *lines] if lines else ["all programs have the same classes"]))
    texts = {}
    if options.shared:
        shared = write_documents(folder, "shared", corpus_documents(options.shared / "data" / "corpus"))
        texts["files of the shared corpus"] = cleaned(shared, points, folder, "corpus")
    texts["mixed text"] = cleaned(mixed(options, options.megabytes), points, folder, "mixed")
    sample = (options.mixed / "mixed.txt").read_bytes()[:4_000_000].decode("utf-8", "ignore")
    texts["random strings"] = (write_documents(folder, "fuzz", fuzz_strings(options, points, sample)), 0)
    rows = []
    for vocabulary in tokenizer_vocabularies.RANKS:
        running = [programs.start(name, vocabulary) for name in programs.names(vocabulary)]
        for title, (text, _) in texts.items():
            tokens = 0
            # quicktok cannot be asked for its classes, and those of its version of Unicode are not the others'.
            taking_part = [p for p in running if p.name != "quicktok" or title != "random strings"]
            for slice_ in text.slices:
                answers = {}
                for p in taking_part:
                    p.use(text)
                    answers[p.name] = p.encode(slice_)
                check_equal(taking_part, text, vocabulary, slice_, answers)
                tokens += answers["tally"]["tokens"]
            peers = ", ".join(SHOWN.get(p.name, p.name) for p in taking_part[1:])
            rows.append([vocabulary, title, f"{len(text.ends):,}", f"{text.bytes / 1e6:.1f} MB", f"{tokens:,}", f"equal: {peers}"])
            say(f"{vocabulary}: {title} equal")
        for p in running:
            p.close()
    changed = sum(n for _, n in texts.values())
    left = "; ".join(lines) if lines else "none"
    return "## Tokenizers: equal ids\n\nEvery document's ids, by a hash of all of them. llama3 and qwen2 are the patterns of those models " \
           "over the ranks of cl100k. Left out are the code points whose class is not the same in the peers' versions of Unicode " \
           f"({len(points)} points, in {changed} documents): {left}.\n\nThe mixed text: {mixed_list(options)}.\n\n" + \
        table(["vocabulary", "text", "documents", "size", "tokens", "ids"], rows), []


# ---- speed

def take_turns(options, start, text, ask, check=lambda running, slice_, answers: None):
    """{program: {slice: [seconds of each round]}}; start(round) gives the programs, whose order rotates. check ends the
    program when the answers to a slice differ."""
    found = {}
    for i in range(options.rounds):
        running = start(i)
        for k, slice_ in enumerate(text.slices):
            shift = (i + k) % len(running)
            answers = {p.name: ask(p, slice_) for p in running[shift:] + running[:shift]}
            check(running, slice_, answers)
            for name, answer in answers.items():
                found.setdefault(name, {}).setdefault(slice_, []).append(answer["seconds"])
        say(f"round {i + 1}: " + ", ".join(f"{name} {rate(seconds):.1f} MB/s" for name, seconds in found.items()))
    return found


def rate(seconds):
    """MB/s over all slices, from the median time of each."""
    return sum(s[2] for s in seconds) / sum(map(statistics.median, seconds.values())) / 1e6


def ratio(theirs, ours):
    """Median over slices and rounds of their time by ours in the same turn."""
    return statistics.median(t / o for s in theirs for t, o in zip(theirs[s], ours[s]))


class Fresh:
    """New processes for every round, so that they meet each slice for the first time: no cache of theirs holds it."""

    def __init__(self, programs, vocabulary, text):
        self.programs, self.vocabulary, self.text, self.running = programs, vocabulary, text, []

    def start(self, names):
        self.close()
        self.running = [self.programs.start(name, self.vocabulary) for name in names]
        for p in self.running:
            p.use(self.text)
        return self.running

    def close(self):
        for p in self.running:
            p.close()
        self.running = []


def encode(options, programs, folder):
    text, rows, misses = mixed(options, options.megabytes), [], []
    for vocabulary in options.names:
        names = [*programs.names(vocabulary), "tally from python"]
        fresh = Fresh(programs, vocabulary, text)
        found = take_turns(options, lambda i: fresh.start([n for n in names if n != "hf" or i == 0]), text, lambda p, s: p.encode(s),
                           lambda running, s, answers: check_equal(running, text, vocabulary, s, answers))
        both = take_turns(options, lambda i: fresh.start(["tally"]), text, lambda p, s: p.encode(s, 2))["tally"]
        one = take_turns(options, lambda i: fresh.start(["tally"]), text, lambda p, s: p.encode(s))["tally"]
        fresh.close()
        for name in names:
            by, bar = ratio(found[name], found["tally"]), BARS.get(name, 0)
            rows.append([vocabulary, SHOWN.get(name, name), f"{rate(found[name]):.1f}", f"{by:.2f}", bar or ""])
            if by < bar:
                misses.append(f"{vocabulary}: {by:.2f} x {name}, the bar is {bar}")
        scaling, python = ratio(one, both), ratio(found["tiktoken"], found["tally from python"])
        rows.append([vocabulary, "Tally, 2 threads", f"{rate(both):.1f}", f"{1 / scaling:.2f}", f"{1 / THREADS_BAR:.2f} at most"])
        rows.append([vocabulary, "tiktoken by Tally from Python", "", f"{python:.2f}", PYTHON_BAR])
        misses += [f"{vocabulary}: 2 threads {scaling:.2f} x one"] if scaling < THREADS_BAR else []
        misses += [f"{vocabulary}: from Python {python:.2f} x tiktoken"] if python < PYTHON_BAR else []
    return f"## Tokenizers: encoding\n\n{text.bytes / 1e6:.0f} MB of the mixed text, {text.slices[-1][1]:,} documents, each a text of its " \
           "own; one thread if not said otherwise; medians over slices of 10 MB and " \
           f"{options.rounds} rounds in which the programs take turns, new processes in each (HF tokenizers in the first round " \
           "alone), so that no program has met a slice before. tiktoken's call is `encode_to_numpy`, HF's `encode_batch_fast`.\n\n" + \
        table(["vocabulary", "program", "MB/s", "Tally is faster by", "bar"], rows), misses


def decode(options, programs, folder):
    text, rows, misses = mixed(options, options.megabytes), [], []
    for vocabulary in options.names:
        names = [n for n in programs.names(vocabulary) if n != "hf"] + ["tally from python"]
        running = [programs.start(name, vocabulary) for name in names]
        for p in running:
            p.use(text)
        for slice_ in text.slices:
            if len({p.decode(slice_)["hash"] for p in running}) != 1:
                sys.exit(f"{vocabulary}: decoded bytes differ")
        found = take_turns(options, lambda i: running, text, lambda p, s: p.decode(s))
        for p in running:
            by = ratio(found[p.name], found["tally"])
            rows.append([vocabulary, SHOWN.get(p.name, p.name), f"{rate(found[p.name]):.0f}", f"{by:.2f}",
                         DECODE_BAR if p.name == "tiktoken" else ""])
            if p.name == "tiktoken" and by < DECODE_BAR:
                misses.append(f"{vocabulary}: decode {by:.2f} x tiktoken")
            p.close()
    return f"## Tokenizers: decoding\n\nIds of {text.bytes / 1e6:.0f} MB of the mixed text to bytes, a slice of 10 MB a call.\n\n" + \
        table(["vocabulary", "program", "MB/s out", "Tally is faster by", "bar"], rows), misses


# ---- worst cases

WORST = {"one letter": lambda n: "a" * n, "spaces": lambda n: " " * n, "`^`": lambda n: "^" * n,
         "one emoji": lambda n: "🙂" * (n // 4), "alternating scripts": lambda n: "aж" * (n // 3), "digits": lambda n: "7" * n}
SIZE = 10_000_000
PATIENCE = 60  # seconds that a peer gets for one text


def worst(options, programs, folder):
    rows, misses = [], []
    for vocabulary in options.names:
        for title, make in WORST.items():
            sizes = {}
            for n in (SIZE // 10, SIZE, 2 * SIZE):
                sizes[n] = folder / f"worst-{n}.txt"
                sizes[n].write_text(make(n))
            once = programs.start("tally", vocabulary)
            memory = once.ask("whole", sizes[SIZE])["grown"] / sizes[SIZE].stat().st_size
            times = {n: [] for n in sizes}
            for _ in range(max(3, options.rounds)):
                for n in (SIZE, 2 * SIZE):
                    answer = once.ask("whole", sizes[n])
                    times[n].append(answer["seconds"])
                    if n == SIZE:
                        hash_ = answer["hash"]
            small = once.ask("whole", sizes[SIZE // 10])
            once.close()
            doubling = statistics.median(b / a for a, b in zip(times[SIZE], times[2 * SIZE]))
            seconds = statistics.median(times[SIZE])
            cells = [f"{whole_of(programs, 'tiktoken', vocabulary, sizes[SIZE], hash_)}",
                     f"{whole_of(programs, 'hf', vocabulary, sizes[SIZE // 10], small['hash'])}"]
            rows.append([vocabulary, title, f"{seconds * 1e3:.0f} ms", f"{doubling:.2f}", f"{memory:.1f}", *cells])
            misses += [f"{vocabulary}, {title}: doubling costs {doubling:.2f} x"] if doubling > DOUBLING_BAR else []
            misses += [f"{vocabulary}, {title}: {memory:.1f} bytes a byte"] if memory > BYTES_BAR else []
            say(f"{vocabulary}, {title}: {seconds * 1e3:.0f} ms, {doubling:.2f} x, {memory:.1f} bytes a byte; {cells}")
    return "## Tokenizers: worst cases\n\n10 MB of each as one text, one thread; what 20 MB cost by what 10 MB cost (bar: at most " \
           f"{DOUBLING_BAR}), and by how much the process grew, ids included, a byte of text (bar: at most {BYTES_BAR}). Peers: tiktoken " \
           f"10 MB, HF tokenizers 1 MB, {PATIENCE} s at most; ids equal where they answer.\n\n" + \
        table(["vocabulary", "text", "Tally", "20 MB / 10 MB", "bytes a byte", "tiktoken", "HF tokenizers, a tenth of it"], rows), misses


def whole_of(programs, name, vocabulary, path, hash_):
    """Time of a peer for one text in words."""
    program = programs.start(name, vocabulary)
    timer = threading.Timer(PATIENCE, program.process.kill)
    timer.start()
    try:
        answer = program.ask("whole", path)
        return f"{answer['seconds'] * 1e3:,.0f} ms" + ("" if answer["hash"] == hash_ else ", OTHER IDS")
    except (Died, BrokenPipeError):
        return "fails" if timer.is_alive() else f"more than {PATIENCE} s"
    finally:
        timer.cancel()
        program.close()


# ---- streams

STREAMED = 3  # documents


def stream(options, programs, folder):
    text, rows = mixed(options, options.megabytes), []
    wanted = {"Cyrillic": ("а", "я"), "Han": ("一", "龥"), "Latin": ("à", "ÿ")}
    found = {}
    for i in range(text.slices[-1][1]):
        data = text.document(i)
        if 20_000 <= len(data) <= 60_000:
            characters = data.decode()
            for script, (a, b) in wanted.items():
                if script not in found and sum(a <= c <= b for c in characters) * (20 if script == "Latin" else 10) > len(characters):
                    found[script] = i
        if len(found) == STREAMED:
            break
    for vocabulary in options.names:
        program = programs.start("tally", vocabulary)
        for script, i in found.items():
            path = folder / "streamed.txt"
            path.write_bytes(text.document(i))
            whole, streamed = program.ask("whole", path), program.ask("stream", path, 1, 4096)
            if whole["hash"] != streamed["hash"]:
                sys.exit(f"{vocabulary}: encode_stream and encode differ on document {i} ({script})")
            rows.append([vocabulary, script, f"{path.stat().st_size:,}", f"{whole['tokens']:,}", f"{streamed['sizes']:,}", "equal"])
        program.close()
    return "## Tokenizers: streams\n\nThree documents of the mixed text in chunks of every size from 1 to 4,096 bytes, under a limit of the " \
           "address space (setrlimit) 1 MiB above what the process has with its vocabulary loaded.\n\n" + \
        table(["vocabulary", "script", "bytes", "tokens", "sizes", "ids beside the whole's"], rows), []
