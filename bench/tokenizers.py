#!/usr/bin/env python3
"""Tally's tokenizers beside tiktoken, Hugging Face's tokenizers, quicktok and rustbpe on this machine: equal ids, speed,
worst cases, decoding, streaming, training.

    bench/tokenizers.py --vocabularies FOLDER [--only ids,encode,worst,decode,stream,train,zipf] [--rounds 3] [--write]

FOLDER holds gpt2_vocab.json, gpt2_merges.txt, cl100k_base.tiktoken and o200k_base.tiktoken (plain or .gz); nothing is
downloaded but the mixed text's Debian packages (mixed_text.py). $TALLY_SHARED stands for FOLDER/../.. of these and of the
corpora of `ids`. The peers live in the environment that tools/peers.sh makes (--peers, $TALLY_PEERS, ~/.cache/tally/peers).

Each program is a process that waits for commands (tokenizer_worker.h), so the programs take turns, a slice of about 10 MB
of the mixed text each; ids must be equal slice by slice, in what is timed, and a ratio is the median over the slices
and rounds of the peer's time by Tally's. Hugging Face's program takes part in the first round only. --write puts the
tables into docs/benchmarks.md. Run it on an idle machine.
"""
import argparse
import os
import pathlib
import sys
import tempfile

import mixed_text
import tokenizer_contests
import tokenizer_training
from contest import ROOT, say
from tokenizer_programs import Programs

sys.path.insert(0, str(ROOT / "tools"))
import measure  # noqa: E402

SECTIONS = ("ids", "encode", "worst", "decode", "stream", "train", "zipf")

def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--vocabularies", type=pathlib.Path, help="folder of the published vocabulary files")
    parser.add_argument("--only", default="ids,encode,worst,decode,stream,train", help="sections: " + ", ".join(SECTIONS))
    parser.add_argument("--names", default="gpt2,cl100k,o200k", help="vocabularies of encode, worst and decode")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=100, help="of mixed text for encode and decode")
    parser.add_argument("--train_megabytes", type=int, default=200, help="of mixed text for train")
    parser.add_argument("--zipf_megabytes", type=int, default=1000, help="of generated words for zipf")
    parser.add_argument("--fuzz", type=int, default=10_000, help="random strings of ids")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mixed", type=pathlib.Path, default=mixed_text.default_folder(), help="folder of mixed_text.py")
    parser.add_argument("--tally", type=pathlib.Path, default=ROOT / "build" / "release" / "bin" / "tally")
    parser.add_argument("--module", type=pathlib.Path, default=ROOT / "build" / "release" / "python",
                        help="folder that holds the Python module tally")
    parser.add_argument("--peers", type=pathlib.Path, help="environment made by tools/peers.sh")
    parser.add_argument("--quicktok", type=pathlib.Path, help="source folder of quicktok, built in its folder build")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    options.only, options.names = options.only.split(","), options.names.split(",")
    if unknown := set(options.only) - set(SECTIONS):
        parser.error(f"unknown section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    options.shared = pathlib.Path(os.environ["TALLY_SHARED"]) if "TALLY_SHARED" in os.environ else None
    if not options.vocabularies and options.shared:
        options.vocabularies = options.shared / "data" / "corpus" / "tokenizer"
    if not options.vocabularies:
        parser.error("name the folder of the vocabulary files: --vocabularies")
    options.peers = options.peers or pathlib.Path(os.environ.get("TALLY_PEERS", pathlib.Path.home() / ".cache/tally/peers"))
    if not (options.peers / "bin" / "python").exists():
        parser.error(f"{options.peers} has no peers; run tools/peers.sh {options.peers}")
    return options


def main():
    options = arguments()
    if os.getloadavg()[0] > 0.5:
        say(f"the load average is {os.getloadavg()[0]:.1f}: other programs disturb these figures")
    need = max(options.megabytes, options.train_megabytes if "train" in options.only else 0)
    mixed_text.ready(options.mixed, need)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        programs, missed = Programs(options, folder), []
        for section in [s for s in SECTIONS if s in options.only]:
            module = tokenizer_training if section in ("train", "zipf") else tokenizer_contests
            text, misses = getattr(module, section)(options, programs, folder)
            missed += misses
            print(text, flush=True)
            if options.write:
                measure.write(f"tokenizers {section}", text, f"bench/tokenizers.py --only {section} --rounds {options.rounds}" +
                              (f" --fuzz {options.fuzz}" if section == "ids" else ""))
    if missed:
        sys.exit("beyond the limit: " + "; ".join(missed))


if __name__ == "__main__":
    main()
