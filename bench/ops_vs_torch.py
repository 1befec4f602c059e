#!/usr/bin/env python3
"""Single ops of Tally's Python module against PyTorch on the CPU, in turn.

    bench/ops_vs_torch.py --peers /opt/peers [--module build/venv/bin/python] [--only "NAME;..."] [--rounds 5] [--write]

One process of each program; while one works the other is stopped, so that no waiting thread takes a core. Results are
compared before anything is timed. A round is a median of calls; figures are medians over the rounds. --write puts the
table into docs/benchmarks.md. The cases: bench/ops_cases.py. `tools/peers.sh` makes the folder of peers.
"""
import argparse
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from contest import ROOT, say  # noqa: E402
from ops_cases import CASES  # noqa: E402

SEED, SECONDS, TOLERANCE = 7, 0.25, 2e-4  # seconds of a case and round; tolerance: of the largest number
LEAST_MEAN, LEAST = 1.2, 0.7              # of PyTorch's time over Tally's


def difference(numpy, *files):
    """The largest difference of the results over the largest number; a text where they are not alike."""
    a, b = (numpy.load(f"{f}.npz") for f in files)
    worst = 0.0
    for key in b.files:
        want = b[key].astype("float64")
        if a[key].shape != want.shape:
            return f"shapes {a[key].shape} and {want.shape}"
        worst = max(worst, float(abs(a[key].astype("float64") - want).max() / max(abs(want).max(), 1e-30)))
    return worst if worst <= TOLERANCE else f"results {worst:.1e} of the largest number apart"


def worker(engine, threads):
    """Answers lines of standard input: `check NAME FILE` writes the results, `time NAME` gives seconds, `compare NAME
    FILE FILE` says how far two files of results are apart."""
    import numpy
    module = __import__(engine)
    if engine == "torch":
        module.set_num_threads(threads)
    made = {}
    for line in sys.stdin:
        what, name, *rest = line.rstrip("\n").split("\t")
        if what == "compare":
            print(json.dumps(difference(numpy, *rest)), flush=True)
            continue
        if name not in made:
            made = {name: CASES[name](module, module.from_numpy, numpy.random.default_rng(SEED))}
        run = made[name]
        if what == "check":
            results = run()
            results = results if isinstance(results, (tuple, list)) else [results]
            numpy.savez(rest[0], *[r.detach().numpy() for r in results])
            print(json.dumps("done"), flush=True)
            continue
        run()
        times, end = [], time.perf_counter() + SECONDS
        while len(times) < 5 or time.perf_counter() < end:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        print(json.dumps(statistics.median(times)), flush=True)


class Program:
    def __init__(self, python, engine, threads):
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TALLY_THREADS": str(threads)}
        self.process = subprocess.Popen([python, __file__, "--worker", engine, "--threads", str(threads)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.engine = engine

    def ask(self, *words):
        self.process.send_signal(signal.SIGCONT)
        print(*words, sep="\t", file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.engine}: {words[1]} failed")
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(line)

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def table(rows, threads):
    mean = math.exp(statistics.fmean(math.log(r["ratio"]) for r in rows))
    lines = ["| op | Tally | PyTorch | Tally is faster by |", "|" + " --- |" * 4]
    lines += [f"| {r['case']} | {r['tally'] * 1e6:,.0f} us | {r['torch'] * 1e6:,.0f} us | {r['ratio']:.2f} |" for r in rows]
    least = min(rows, key=lambda r: r["ratio"])
    return f"## Ops of the Python module against PyTorch\n\nf32, {threads} threads, results compared first. Geometric mean " \
           f"{mean:.2f}, least {least['ratio']:.2f} ({least['case']}).\n\n" + "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--peers", type=pathlib.Path, default=pathlib.Path("/opt/peers"))
    parser.add_argument("--module", default=ROOT / "build" / "venv" / "bin" / "python", help="a Python that has tally")
    parser.add_argument("--only", default="", help="parts of names, separated by semicolons")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker, options.threads)
    import tempfile
    names = [n for n in CASES if not options.only or any(part in n for part in options.only.split(";"))]
    programs = [Program(options.module, "tally", options.threads),
                Program(options.peers / "bin" / "python", "torch", options.threads)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names, 1):
            files = [f"{folder}/{p.engine}" for p in programs]
            for program, file in zip(programs, files):
                program.ask("check", name, file)
            apart = programs[1].ask("compare", name, *files)
            if isinstance(apart, str):
                sys.exit(f"{name}: Tally's and PyTorch's {apart}; nothing was timed")
            rounds = [[p.ask("time", name) for p in programs] for _ in range(options.rounds)]
            tally, torch = (statistics.median(r[i] for r in rounds) for i in range(2))
            rows.append({"case": name, "tally": tally, "torch": torch, "ratio": torch / tally, "threads": options.threads})
            say(f"{number}/{len(names)} {name}: {rows[-1]['ratio']:.2f}")
            print(json.dumps(rows[-1]), flush=True)
    for program in programs:
        program.end()
    text = table(rows, options.threads)
    if options.write:
        sys.path.insert(0, str(ROOT / "tools"))
        import measure
        measure.write("ops-torch", text, f"bench/ops_vs_torch.py --rounds {options.rounds}")
    else:
        print(text)


if __name__ == "__main__":
    main()
