"""Writes the stub of tally._C from the one that nanobind makes: int, float and bool in signatures as builtins.int ...

The module and the class Tensor have members of these names (a dtype, a conversion), which hide Python's types from a
type checker.
usage: qualify_stub.py FROM TO
"""
import pathlib
import re
import sys

TYPE = re.compile(r"(?<![\w.\"'])(int|float|bool)(?![\w(\"'])")


def qualified(text):
    """The text of a stub with Python's own types named in full."""
    lines = []
    for line in text.splitlines(keepends=True):
        code = re.match(r"\s*(?:async )?def \w+", line)
        lines.append(line[: code.end()] + TYPE.sub(r"builtins.\1", line[code.end():]) if code else line)
    at = next(i for i, line in enumerate(lines) if line.startswith(("import ", "from ")))
    return "".join([*lines[:at], "import builtins\n", *lines[at:]])


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_text(qualified(pathlib.Path(sys.argv[1]).read_text()))
