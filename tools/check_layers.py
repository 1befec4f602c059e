#!/usr/bin/env python3
"""Checks the direction of every #include against tally/layers.txt, and the few other rules on includes.

- A layer includes what its line allows and what those layers reach; the program (cli/) includes any layer.
- Kernel files (tally/ops/*_cpu.cpp, *_cuda.cu) reach no core header but view.h, fault.h, number.h, small_floats.h and cost.h, and
  of base only rng.h and parallel.h: no Tensor, no tape, no ledger.
- CLI11 stands in cli/args.cpp only, nlohmann-json in tally/base/json.cpp only.
- Nothing inside tally/ includes the umbrella tally/tally.h.
- tests/, and headers that include it (helpers of tests), are included by tests only.

usage: check_layers.py [ROOT]    Prints one line a violation; exit code 1 when there is any.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.M)
KERNEL_CORE = {"tally/core/view.h", "tally/core/cost.h", "tally/core/fault.h", "tally/core/number.h", "tally/core/small_floats.h"}
KERNEL_BASE = {"tally/base/rng.h", "tally/base/parallel.h"}


def read_layers(path):
    """{layer: set of layers it may include}, closed over what they reach. A cycle or an unknown name is an error."""
    direct = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            name, _, allowed = line.partition("->")
            direct[name.strip()] = allowed.split()
    closed = {}

    def close(name, trail):
        if name in trail:
            sys.exit(f"{path}: {' -> '.join(trail + [name])} is a cycle")
        if name not in direct:
            sys.exit(f"{path}: {trail[-1]} names {name}, which has no line")
        if name not in closed:
            closed[name] = {name}.union(*[close(d, trail + [name]) for d in direct[name]])
        return closed[name]

    for name in direct:
        close(name, [])
    return closed


def reached(root, file, seen):
    """Adds to seen every project header that file includes, directly or not."""
    for _, name in INCLUDE.findall((root / file).read_text()):
        if name.startswith("tally/") and name not in seen and (root / name).exists():
            seen.add(name)
            reached(root, name, seen)
    return seen


def is_test_helper(root, name):
    return (name.startswith("tally/") and (root / name).exists()
            and any(inner.startswith("tests/") for _, inner in INCLUDE.findall((root / name).read_text())))


def check_file(root, file, layers):
    """One message a violation in the file (its path relative to root)."""
    layer = file.split("/")[1] if file.startswith("tally/") and file.count("/") > 1 else file.split("/")[0]
    umbrella = file == "tally/tally.h"
    is_test = file.endswith(("_test.cpp", ".h"))  # a header that includes tests/ becomes a helper of tests
    if not umbrella and layer not in layers:
        return [f"{file}: the layer {layer} has no line in tally/layers.txt"]
    found = []
    for bracket, name in INCLUDE.findall((root / file).read_text()):
        if name.startswith("CLI/") and file != "cli/args.cpp":
            found.append(f"{file}: includes {name}; only cli/args.cpp may")
        if name.startswith("nlohmann/") and file != "tally/base/json.cpp":
            found.append(f"{file}: includes {name}; only tally/base/json.cpp may")
        if not is_test and (name.startswith("tests/") or is_test_helper(root, name)):
            found.append(f"{file}: includes {name}; only tests may")
        if name == "tally/tally.h" and layer != "cli":
            found.append(f"{file}: includes the umbrella tally/tally.h, which is for users")
        if bracket == '"' and name.startswith("tally/") and name.count("/") > 1 and not umbrella:
            other = name.split("/")[1]
            if other not in layers[layer]:
                found.append(f"{file}: {layer} may not include {name} (see tally/layers.txt)")
        if name.startswith("cli/") and layer != "cli":
            found.append(f"{file}: {layer} may not include {name}")
        if bracket == '"' and "/" not in name:
            found.append(f"{file}: includes {name}; write its path from the repository's root")
    if re.fullmatch(r"tally/ops/\w+_(cpu\.cpp|cuda\.cu)", file):
        for name in sorted(reached(root, file, set())):
            core, base = name.startswith("tally/core/"), name.startswith("tally/base/")
            if (core and name not in KERNEL_CORE) or (base and name not in KERNEL_BASE):
                found.append(f"{file}: a kernel file may not reach {name}")
    return found


def check_tree(root):
    layers = read_layers(root / "tally/layers.txt")
    files = sorted(str(p.relative_to(root)) for top in ("tally", "cli", "python") for p in (root / top).rglob("*")
                   if p.suffix in {".h", ".cpp", ".cu", ".cuh"})
    return files, [message for file in files for message in check_file(root, file, layers)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    files, violations = check_tree(root)
    for message in violations:
        print(message)
    print(f"check_layers: {len(files)} files, {len(violations)} violation{'' if len(violations) == 1 else 's'}")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
