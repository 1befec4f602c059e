#!/usr/bin/env python3
"""The slowest steps of the last build, from ninja's log: `build_times.py BUILD_DIR [--limit SECONDS]`.

A step above the limit (60 s) is a warning, since other programs may have slowed it down; with TALLY_STRICT_TIMES=1, on
an idle machine, it is a failure. Steps that ccache answered are short, so they never fail.
"""
import argparse
import os
import pathlib
import sys


def read_log(path):
    """{output: seconds}, the last entry of each output (ninja appends)."""
    steps = {}
    for line in path.read_text().splitlines():
        parts = line.split("\t")
        if len(parts) >= 4 and not line.startswith("#"):
            steps[parts[3]] = (int(parts[1]) - int(parts[0])) / 1000
    return steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--limit", type=float, default=60)
    options = parser.parse_args()
    log = options.build / ".ninja_log"
    if not log.exists():
        sys.exit(f"{log}: no such file; build first")
    steps = {name: s for name, s in read_log(log).items() if name.endswith((".o", ".gch"))}
    slow = sorted(steps.items(), key=lambda item: (-item[1], item[0]))
    print(f"slowest compile steps of {len(steps)}:")
    for name, seconds in slow[:10]:
        print(f"  {seconds:6.1f} s  {name}")
    above = [name for name, seconds in slow if seconds > options.limit]
    strict = os.environ.get("TALLY_STRICT_TIMES") == "1"
    for name in above:
        print(f"{'error' if strict else 'warning'}: {name} took more than {options.limit:.0f} s to compile")
    sys.exit(1 if above and strict else 0)


if __name__ == "__main__":
    main()
