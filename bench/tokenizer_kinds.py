#!/usr/bin/env python3
"""Writes the measured tables of docs/tokenizers.md: bytes a token of the four kinds and of two sizes of vocabulary on three
languages and code, and what <|unk|> does to perplexity.

    bench/tokenizer_kinds.py [--tally build/release/bin/tally] [--mixed FOLDER] [--megabytes 4] [--write]

The texts are documents of mixed_text.py's packages: of each language and of Go's sources some to learn from, a quarter as
many others to look at. The vocabularies are learned from all of the first together.
"""
import argparse
import array
import collections
import datetime
import json
import math
import pathlib
import re
import sys
import tempfile

import mixed_text
from contest import ROOT, call, json_lines

sys.path.insert(0, str(ROOT / "tools"))
import measure  # noqa: E402

PAGE = ROOT / "docs" / "tokenizers.md"
GROUPS = {"en": "English", "ru": "Russian", "zh": "Chinese", "golang-1.19-src": "Go"}
KINDS = [("byte", "byte", []), ("char", "char", []), ("word, all words", "word", []),
         ("word, 10,000 entries", "word", ["--vocab-size", 10_000]), ("bpe, 10,000 entries", "bpe", ["--vocab-size", 10_000]),
         ("bpe, 32,000 entries", "bpe", ["--vocab-size", 32_000]),
         ("bpe, 32,000 entries, o200k's pattern", "bpe", ["--vocab-size", 32_000, "--pattern", "o200k"])]
CUTS = (1, 2, 5, 20, 100)


def table(rows):
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def train(tally, out, files, kind, flags):
    call([tally, "tokenizer", "train", *files, "--kind", kind, *flags, "--out", out, "--overwrite"], {})


def compression(tally, folder, groups):
    files = [folder / f"{g}.train" for g in groups]
    rows = [["kind", "entries", *(f"{GROUPS[g]}" for g in groups), "unknown", "MB/s"]]
    for name, kind, flags in KINDS:
        train(tally, folder / "tok", files, kind, flags)
        cells, unknown, speeds = [], [], []
        for g in groups:
            row = json_lines(call([tally, "tokenizer", "info", folder / "tok", "--text", folder / f"{g}.test", "--json"], {})[0])[0]
            cells.append(f"{row['bytes_per_token']:.2f}")
            unknown.append(row["unknown_rate"])
            speeds.append(row["megabytes_per_second"])
        rows.append([name, f"{row['entries']:,}", *cells, f"{max(unknown):.1%}" if max(unknown) else "0",
                     f"{min(speeds):.0f} to {max(speeds):.0f}"])
    return rows


def ids_of(tally, folder, file):
    call([tally, "tokenizer", "encode", "--tokenizer", folder / "tok", "--input", file, "--out", folder / "ids.i32"], {})
    ids = array.array("i")
    ids.frombytes((folder / "ids.i32").read_bytes())
    return ids


def perplexity(tally, folder, group):
    """A bigram model over words, interpolated with one word alone (add-one), at several cut-offs of the vocabulary."""
    rows = [["words that occur at least", "entries", "unknown", "perplexity a token", "bits a byte, <\\|unk\\|> free",
             "bits a byte, unknown words spelled"]]
    learned, seen = folder / f"{group}.train", folder / f"{group}.test"
    size = seen.stat().st_size
    for cut in CUTS:
        train(tally, folder / "tok", [learned], "word", ["--min_count", cut])
        before, after = ids_of(tally, folder, learned), ids_of(tally, folder, seen)
        entries = json.loads(call([tally, "tokenizer", "info", folder / "tok", "--json"], {})[0])["entries"]
        unknown = json.loads((folder / "tok" / "tokenizer_config.json").read_text())["special_tokens"]["<|unk|>"]
        ones, pairs = collections.Counter(before), collections.Counter(zip(before, before[1:]))
        bits = 0
        for a, b in zip(after, after[1:]):
            alone = (ones[b] + 1) / (len(before) + entries)
            bits -= math.log2(0.6 * pairs[a, b] / ones[a] + 0.4 * alone if ones[a] else alone)
        share = after.count(unknown) / len(after)
        # An unknown word's letters, by the frequencies of bytes in the text learned from.
        lost = unknown_bytes(tally, folder, seen)
        bytes_ = collections.Counter(learned.read_bytes())
        total = sum(bytes_.values()) + 256
        spelled = sum(-n * math.log2((bytes_[b] + 1) / total) for b, n in collections.Counter(lost).items())
        rows.append([cut, f"{entries:,}", f"{share:.1%}", f"{2 ** (bits / (len(after) - 1)):.1f}", f"{bits / size:.3f}",
                     f"{(bits + spelled) / size:.3f}"])
    return rows


def unknown_bytes(tally, folder, file):
    """The bytes of the text that became <|unk|>: those of its words that the vocabulary lacks."""
    vocabulary = set(json.loads((folder / "tok" / "vocab.json").read_text()))
    import tokenizer_vocabularies
    shown = tokenizer_vocabularies.printable_bytes()
    lost = bytearray()
    for word in re.findall(r"\w+|[^\w]", file.read_text()):
        data = word.encode()
        if "".join(shown[b] for b in data) not in vocabulary:
            lost += data
    return bytes(lost)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tally", type=pathlib.Path, default=ROOT / "build" / "release" / "bin" / "tally")
    parser.add_argument("--mixed", type=pathlib.Path, default=mixed_text.default_folder())
    parser.add_argument("--megabytes", type=int, default=4, help="of each language to learn from")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tokenizers.md")
    options = parser.parse_args()
    mixed_text.ready(options.mixed, 200)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for group, (learn, look) in mixed_text.samples(options.mixed, GROUPS, options.megabytes * 1_000_000).items():
            (folder / f"{group}.train").write_bytes(learn)
            (folder / f"{group}.test").write_bytes(look)
        sections = {"kinds": table(compression(options.tally, folder, list(GROUPS))),
                    "unknown": table(perplexity(options.tally, folder, "en"))}
    commit = measure.run("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip()
    stamp = f"`bench/tokenizer_kinds.py --megabytes {options.megabytes}`, commit {commit}, {measure.machine()}, " \
            f"{datetime.date.today()}"
    page = PAGE.read_text()
    for name, text in sections.items():
        print(text + "\n", flush=True)
        page, n = re.subn(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", lambda m: f"{m[1]}{text}\n\n{stamp}\n{m[2]}", page,
                          flags=re.S)
        if n != 1:
            sys.exit(f"{PAGE} has no place for {name}")
    if options.write:
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
