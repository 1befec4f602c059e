#!/usr/bin/env python3
"""Writes docs/notes.md: the course's lectures 1 and 2 in C++ and in Python, each snippet beside what it prints.

The sources are examples/notes/notes.cpp and notes.py; shown is what stands between [name] and [end]. The C++ program is
built in the folder given (target tally_notes), the Python file run with an interpreter that has the module; both run in an
empty folder, and the page is written from what they print. An output that is the same from both stands once; tensors
must be the same.
usage: make_notes.py [--build build/release] [--python build/venv/bin/python]    writes the page
       make_notes.py --check [--program PROGRAM] [--python PYTHON]               fails when the page is stale; runs what is given
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/notes.md"
FILES = {"C++": "examples/notes/notes.cpp", "Python": "examples/notes/notes.py"}
HEAD = """# Lectures 1 and 2, run

The course's first two lectures, a snippet a topic, in C++ and in Python, with what they print. `tools/make_notes.py` runs
[notes.cpp](../examples/notes/notes.cpp) and [notes.py](../examples/notes/notes.py) and writes this page; the tests run both
again. Dtypes go by `bf16` in C++ and by `tally.bfloat16` in Python. `print` in C++ is that of
[print.h](../examples/notes/print.h), which uses Python's words for truths and numbers.
[The course, topic by topic](course.md) names the tests behind each fact.
"""


def snippets(language):
    """name -> text of a source; parts of one name follow each other."""
    found, name = {}, None
    for line in (ROOT / FILES[language]).read_text().splitlines():
        mark = re.fullmatch(r"\s*(?://|#) \[([\w ]+)\]", line)
        if not mark:
            if name:
                found[name][-1].append(line)
        elif mark[1] == "end":
            name = None
        else:
            name = mark[1]
            found.setdefault(name, []).append([])
    return {name: "\n".join(textwrap.dedent("\n".join(part)) for part in parts) for name, parts in found.items()}


def outputs(command, environment=None):
    """name -> what the snippet of that name prints, as the program says it."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    parts = re.split(r"^\[([\w ]+)\]\n", done.stdout, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def as_cpp(text):
    """Python's text of tensors as C++ writes it: the two name dtypes in their own ways."""
    short = {"bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}
    return re.sub(r"dtype=tally\.(\w+)", lambda m: "dtype=" + short.get(m[1], re.sub(r"^([a-z])[a-z]*(\d+)$", r"\1\2", m[1])), text)


def section(name, source, out):
    """One topic of the page; out has a text for each language."""
    same = out["C++"] == out["Python"]
    if "tensor(" in out["C++"] + out["Python"] and out["C++"] != as_cpp(out["Python"]):
        sys.exit(f"[{name}]: C++ and Python differ\n{out['C++']}---\n{out['Python']}")
    text = f"\n## {name[0].upper() + name[1:]}\n"
    for language, fence in [("C++", "cpp"), ("Python", "python")]:
        text += f"```{fence}\n{source[language][name]}\n```\n"
        if not same or language == "Python":
            text += f"```text\n{out[language]}```\n"
    return text


def page_outputs():
    """name -> {language: output} as docs/notes.md has them."""
    found = {}
    for part in PAGE.read_text().split("\n## ")[1:]:
        name = part.split("\n", 1)[0]
        blocks = re.findall(r"```(\w+)\n(.*?)```", part, re.S)
        texts = [text for fence, text in blocks if fence == "text"]
        found[name[0].lower() + name[1:]] = {"C++": texts[0], "Python": texts[-1]}
    return found


def page(out):
    source = {language: snippets(language) for language in FILES}
    names = list(source["C++"])
    for language in FILES:
        if list(source[language]) != names or sorted(out[language]) != sorted(names):
            sys.exit(f"{FILES[language]}: other snippets than {FILES['C++']} has, or not all of them run")
    return HEAD + "".join(section(n, source, {language: out[language][n] for language in FILES}) for n in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--program", type=pathlib.Path)
    parser.add_argument("--python")
    args = parser.parse_args()
    environment = dict(os.environ)
    if not args.check:
        build = (ROOT / args.build).resolve()
        if not args.program:
            subprocess.run(["cmake", "--build", build, "--target", "tally_notes", "tally_python"], check=True)
            environment["PYTHONPATH"] = str(build / "python")
        args.program = args.program or build / "tests/tally_notes"
        args.python = args.python or str(ROOT / "build/venv/bin/python")
    commands = {"C++": [args.program.resolve()] if args.program else None,
                "Python": [args.python, ROOT / FILES["Python"]] if args.python else None}
    old = page_outputs() if args.check else {}
    out = {language: outputs(command, environment) if command else {n: o[language] for n, o in old.items()}
           for language, command in commands.items()}
    text = page(out)
    if not args.check:
        PAGE.write_text(text)
    elif text != PAGE.read_text():
        sys.exit("docs/notes.md is stale: run tools/make_notes.py")


if __name__ == "__main__":
    main()
