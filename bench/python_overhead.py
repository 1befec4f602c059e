#!/usr/bin/env python3
"""What an op costs beside its arithmetic, in Python: 1,000 additions of numbers with gradients, forward and backward.

    bench/python_overhead.py [--rounds 7] [--tally PYTHON] [--torch PYTHON] > FILE

PYTHON are interpreters that have the module: build/venv/bin/python as `./run test` makes it, and the one of
tools/peers.sh. Processes take turns, each gives its best of five; the figures are medians over the rounds. Prints a table
on standard error and JSON lines on standard output; exit code 1 when Tally takes more than half of PyTorch's time.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys

from contest import ROOT, call

PEERS = pathlib.Path(os.environ.get("TALLY_PEERS", pathlib.Path.home() / ".cache/tally/peers"))
CHAIN = """
import sys, time
import {module} as t
x = t.tensor(1.0, requires_grad=True)
def chain(n=1000):
    y = x
    for _ in range(n):
        y = y + x
    y.backward()
    x.grad = None
chain()
best = 1e9
for _ in range(5):
    begin = time.perf_counter()
    chain()
    best = min(best, time.perf_counter() - begin)
print(best / 1000)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tally", default=str(ROOT / "build/venv/bin/python"))
    parser.add_argument("--torch", default=str(PEERS / "bin/python"))
    options = parser.parse_args()
    seconds = {"tally": [], "torch": []}
    for _ in range(options.rounds):
        for module in seconds:
            text, _ = call([getattr(options, module), "-c", CHAIN.format(module=module)], {"OMP_NUM_THREADS": "2"})
            seconds[module].append(float(text))
    median = {m: statistics.median(s) for m, s in seconds.items()}
    ratio = median["tally"] / median["torch"]
    for m, s in median.items():
        print(f"{m:6} {s * 1e9:8.0f} ns an addition with its gradient", file=sys.stderr)
    print(f"ratio  {ratio:8.2f}", file=sys.stderr)
    print(json.dumps({"name": "python_overhead", "tally_ns": median["tally"] * 1e9, "torch_ns": median["torch"] * 1e9,
                      "ratio": ratio}))
    sys.exit(ratio > 0.5)


if __name__ == "__main__":
    main()
