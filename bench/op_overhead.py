#!/usr/bin/env python3
"""What a call of an op costs beside its kernel: scalar adds with and without autograd, einsums beside the product that
one writes by hand.

    bench/op_overhead.py [--rounds 5] [--threads 2] [--write]

Builds op_overhead into build/peers and runs it in rounds of whole processes, in each of which the two programs of a
pattern take turns; figures are medians over the rounds. --write puts the tables into docs/benchmarks.md.
"""
import argparse
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import measure  # noqa: E402
from contest import ROOT, call, json_lines, medians, say  # noqa: E402

MOST_NS, MOST_RATIO = 1000, 1.10  # of an add with its backward; of an einsum's time over that by hand


def rounds_of(program, options):
    """{(contest, name, figure): [value of each round]}"""
    found = {}
    for i in range(options.rounds):
        for row in json_lines(call([program, options.threads, 20], {})[0]):
            name = row.get("chain") or row["pattern"]
            for figure in ("ns", "seconds", "by_hand", "ratio"):
                if figure in row:
                    found.setdefault((row["contest"], name, figure), []).append(row[figure])
        say(f"round {i + 1}")
    return medians(found)


def tables(figures, options, load):
    lines = ["| 1,000 adds of scalars in a chain | an op |", "| --- | --- |"]
    lines += [f"| {name} | {ns:.0f} ns |" for (contest, name, _), ns in figures.items() if contest == "overhead"]
    lines += ["", "| einsum, 512^3 multiply-adds | einsum | by hand | einsum takes |", "|" + " --- |" * 4]
    for (contest, name, figure), seconds in figures.items():
        if figure == "seconds":
            lines.append(f"| {name} | {seconds * 1e6:.0f} us | {figures[contest, name, 'by_hand'] * 1e6:.0f} us | "
                         f"{figures[contest, name, 'ratio']:.3f} x |")
    return f"## The cost of a call\n\nC++, f32, {options.threads} threads, medians of {options.rounds} rounds. An add with its " \
           "backward counts as one op. By hand: `matmul` of views. Load average of the machine before the run: " \
           f"{load:.1f}.\n\n" + "\n".join(lines)


def misses(figures):
    missed = [f"{name}: {ns:.0f} ns" for (_, name, figure), ns in figures.items() if figure == "ns" and ns > MOST_NS]
    return missed + [f"{name}: {r:.3f} x" for (_, name, figure), r in figures.items() if figure == "ratio" and r > MOST_RATIO]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--program", type=pathlib.Path, help="op_overhead, built already")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    if load > 0.5:
        say(f"the load average is {load:.1f}: other programs disturb these figures")
    program = options.program or ROOT / "build" / "peers" / "op_overhead"
    if options.program is None:
        call(["cmake", "-S", ROOT / "bench", "-B", program.parent, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"], {})
        call(["cmake", "--build", program.parent, "--target", "op_overhead"], {})
    figures = rounds_of(program, options)
    text = tables(figures, options, load)
    print(text, flush=True)
    if options.write:
        measure.write("overhead", text, f"bench/op_overhead.py --rounds {options.rounds} --threads {options.threads}")
    if missed := misses(figures):
        sys.exit("beyond the limit: " + "; ".join(missed))


if __name__ == "__main__":
    main()
