#!/usr/bin/env python3
"""Writes tests/golden/einsum_paths.txt: 200 random tensor networks and what opt_einsum's order of contraction costs.

Needs opt_einsum (made with 3.4.0); run by hand, the tests only read the file. A line: the einsum, the cost, the sizes
of axes a, b, c ... Up to eight operands the cost is the least that opt_einsum finds, above that its greedy order's.
"""
import pathlib
import random
import string

import opt_einsum


def network(number):
    """An einsum and its axes' sizes: each axis is in the result or in at least two operands, never twice in one."""
    rng = random.Random(number)
    operands = 2 + number % 7 if number < 160 else 9 + number % 8
    terms = [""] * operands
    output, sizes = [], {}
    for i, axis in enumerate(string.ascii_letters[:operands + 1 + rng.randrange(operands)]):
        sizes[axis] = rng.randint(2, 9)
        holders = 2 if rng.random() < 0.8 else rng.randint(1, min(4, operands))
        chosen = rng.sample(range(operands), holders)
        if i < operands:
            chosen = [i] + [k for k in chosen if k != i][:holders - 1]
        for k in chosen:
            terms[k] += axis
        if len(chosen) == 1 or rng.random() < 0.15:
            output.append(axis)
    rng.shuffle(output)
    return ",".join(terms) + "->" + "".join(output), sizes


def main():
    lines = [f"# {__doc__.splitlines()[0].split(': ')[1]} (opt_einsum {opt_einsum.__version__}, {pathlib.Path(__file__).name})"]
    for number in range(200):
        equation, sizes = network(number)
        shapes = [tuple(sizes[c] for c in term) for term in equation.split("->")[0].split(",")]
        # "optimal" alone is not: it keeps results by the axes of a pair, whatever the other operands need.
        ways = ["greedy"]
        if len(shapes) <= 8:
            ways = ["optimal", "branch-all", opt_einsum.DynamicProgramming(minimize="flops", search_outer=True)]
        costs = [opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=way)[1].opt_cost for way in ways]
        lines.append(f"{equation} {int(min(costs))} " + " ".join(str(n) for n in sizes.values()))
    path = pathlib.Path(__file__).parent.parent / "tests" / "golden" / "einsum_paths.txt"
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
