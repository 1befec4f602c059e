#!/usr/bin/env python3
"""The table of docs/course.md that says which tests hold Tally to the course's notes, lectures 1 and 2, line by line.

The facts of the notes are numbered A001 to A257; a test of one carries its number in its name: in C++
TEST(Notes, A073_StridesOfARowMajorMatrix), in Python test_A084_A085_transpose. This script reads the names out of the
sources. A number that no test carries must stand in WITHOUT_A_TEST with the reason; one that has both is an
error too.
usage: course_tests.py           prints the table
       course_tests.py --write   puts it into docs/course.md
       course_tests.py --check   fails when docs/course.md is stale
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = "docs/course.md"
BEGIN, END = "<!-- tools/course_tests.py writes from here -->", "<!-- to here -->"
LAST = 257

GROUPS = [(1, "Tensor basics"), (20, "Dtypes"), (49, "Memory"), (62, "Device"), (73, "Storage, strides, views"),
          (100, "Elementwise"), (108, "Matmul"), (116, "einops and shape annotations"), (130, "FLOPs and MFU"),
          (156, "Gradients"), (172, "Parameters and initialisation"), (183, "Modules"), (192, "Randomness"),
          (196, "Data loading"), (204, "Optimizers"), (221, "Train loop"), (228, "Checkpoint"), (232, "Mixed precision"),
          (241, "Tokenizers")]

# first, last, what the lines say, why no test of the notes carries them
WITHOUT_A_TEST = [
    (14, 14, "the letters of shapes: B, H, T, D, V, d", "prose"),
    (46, 46, "lower precision: less memory and compute, less stable", "prose"),
    (47, 47, "years of bf16, fp8 and mixed precision", "prose"),
    (69, 69, "memory of the GPU in a picture", "prose"),
    (129, 129, "einops' three functions are rearrange, reduce, repeat", "prose"),
    (130, 130, "what a FLOP is", "prose"),
    (131, 139, "FLOPs of a product, of a forward pass; runs at the notes' sizes",
     "arithmetic; the counted 2 M N K is in `tests/count_test.cpp`, the rule 2, 4, 6 in A167 to A170"),
    (140, 155, "MFU, peaks of A100 and H100, cost of GPT-3 and GPT-4, roofline", "arithmetic with figures of data sheets"),
    (201, 202, "size of LLaMA's data", "prose"),
    (204, 212, "momentum, AdaGrad, RMSProp, Adam", "comes with the optimizers; today there is AdamW"),
    (214, 220, "an optimizer's state, memory and FLOPs", "comes with the optimizers"),
    (230, 230, "AdaGrad's state in a checkpoint", "comes with the optimizers"),
    (232, 240, "what to keep in which precision", "prose"),
]


def collect(root):
    """number -> ([C++ tests], [Python tests]); a test is file:name, the file without what all have in common."""
    found = {}
    cpp = re.compile(r"^TEST(?:_F|_P)?\((Notes\w*),\s*(A\d{3}\w*)\)", re.M)
    python = re.compile(r"^def (test_A\d{3}\w*)\(", re.M)
    sides = [(cpp, ("tally", "tests"), "*_test.cpp"), (python, ("tests/python",), "test_*.py")]
    for side, (pattern, folders, ending) in enumerate(sides):
        for path in sorted(file for folder in folders for file in (root / folder).rglob(ending)):
            for match in pattern.finditer(path.read_text()):
                name = match.group(match.lastindex)
                shown = f"`{path.relative_to(root).as_posix()}` {name}" if side == 0 else f"`{path.name}` {name}"
                for number in re.findall(r"A(\d{3})(?=_|$)", name):
                    found.setdefault(int(number), ([], []))[side].append(shown)
    return found


def problems(found):
    listed = [n for first, last, *_ in WITHOUT_A_TEST for n in range(first, last + 1)]
    for number in range(1, LAST + 1):
        if (number in found) == (number in listed):
            yield f"A{number:03d} " + ("has a test and is listed as without one" if number in found else
                                       "has no test and no reason in tools/course_tests.py")


def table(found):
    lines = [f"Of {LAST} numbered facts of the notes {sum(n <= LAST for n in found)} are tests: "
             f"{sum(n <= LAST and bool(tests[0]) for n, tests in found.items())} in C++, "
             f"{sum(n <= LAST and bool(tests[1]) for n, tests in found.items())} in Python (files in `tests/python`).", ""]
    ends = [first for first, _ in GROUPS[1:]] + [LAST + 1]
    for (first, title), end in zip(GROUPS, ends):
        numbers = [n for n in range(first, end) if n in found]
        if not numbers:
            continue
        lines += [f"### {title}", "| fact | C++ | Python |", "| --- | --- | --- |"]
        lines += [f"| A{n:03d} | {'; '.join(found[n][0])} | {'; '.join(found[n][1])} |" for n in numbers]
        lines += [""]
    lines += ["### Lines without a test", "| facts | what they say | |", "| --- | --- | --- |"]
    for first, last, what, why in WITHOUT_A_TEST:
        lines.append(f"| A{first:03d}" + (f" to A{last:03d}" if last > first else "") + f" | {what} | {why} |")
    return "\n".join(lines) + "\n"


def replaced(page, text):
    head, rest = page.split(BEGIN + "\n")
    return head + BEGIN + "\n" + text + END + rest.split(END)[1]


def main(arguments):
    found = collect(ROOT)
    wrong = list(problems(found))
    if wrong:
        sys.exit("\n".join(wrong))
    page = (ROOT / PAGE).read_text()
    if arguments == ["--write"]:
        (ROOT / PAGE).write_text(replaced(page, table(found)))
    elif arguments == ["--check"]:
        if replaced(page, table(found)) != page:
            sys.exit(f"{PAGE} is stale: run tools/course_tests.py --write")
    elif arguments:
        sys.exit(__doc__)
    else:
        print(table(found), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
