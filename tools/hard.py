#!/usr/bin/env python3
"""The hard cases of long runs at length, by hand; tests/cli has them in seconds (the scenarios are tests/cli/long_runs.py).

    tools/hard.py [CASE...] [--kills 50] [--minutes 30] [--tally build/release/bin/tally]

Cases: kill (kill -9 at random moments, then resume), disk (full, and full to the end; as root), shard (cut under the
run), clock (set back all the time), steady (resident memory of a run of `minutes`). Every disturbed run must end in the
bits of an undisturbed one. Prints a table; with all cases it is also written to docs/benchmarks.md.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "cli")]


def cases(options):
    import long_runs

    def mebibytes(kib):
        return f"{kib / 1024:.1f} MiB"

    def kill(tally, data):
        found = long_runs.kills(tally, data, options.kills, seed=options.seed)
        return f"{found['kills']} times kill -9, {found['inside a save']} of them inside a save; " \
               f"{found['runs that came to their end']} runs of 60 steps ended in the same bits"

    def disk(tally, data):
        found = long_runs.full_disk(tally, data, steps=2000, roomy=True)
        return f"{found['checkpoints that failed']} checkpoints failed (no space left, in the middle of a file), then " \
               "there was room: the run went on and ended in the same bits"

    def full(tally, data):
        long_runs.full_disk_to_the_end(tally, data, wait=5)
        return "exit 1 after 5 s with the newest checkpoint's name; resumed from it once there was room"

    def shard(tally, data):
        found = long_runs.damaged_shard(tally, data, lambda path: os.truncate(path, 300))
        return f"exit 1 with the shard's name, step {found['step saved']} saved; with the shard back, the same bits"

    def clock(tally, data):
        found = long_runs.clock_back(tally, data)
        return f"{found['jumps seen in wall times']} jumps back by an hour; limits kept, the same bits"

    def steady(tally, data):
        found = long_runs.steady_memory(tally, data, options.minutes)
        early = options.minutes / 6
        return f"{found['minutes']} min, {found['steps']:,} steps: RSS {mebibytes(found['RSS early'])} after {early:.3g} min, " \
               f"{mebibytes(found['RSS at the end'])} at the end"

    return {"kill": [("killed", kill)], "disk": [("disk full for a while", disk), ("disk full to the end", full)],
            "shard": [("training shard cut", shard)], "clock": [("wall clock jumps", clock)],
            "steady": [("`tiny` for long", steady)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("kill", "disk", "shard", "clock", "steady")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(names))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--tally", type=pathlib.Path, default=ROOT / "build" / "release" / "bin" / "tally")
    options = parser.parse_args()
    asked = options.cases or names
    if unknown := set(asked) - set(names):
        parser.error(f"unknown case {', '.join(sorted(unknown))}; cases are {', '.join(names)}")
    if not options.tally.exists():
        parser.error(f"{options.tally} is missing; run ./run test first")
    os.environ["TALLY"] = str(options.tally.resolve())
    import long_runs
    import measure
    from program import Tally

    rows = ["| what happens | what is found | seconds |", "| --- | --- | --- |"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        long_runs.prepare(Tally(folder, environment))
        table = cases(options)
        for title, scenario in (entry for name in asked for entry in table[name]):
            place = folder / title.replace(" ", "_")
            place.mkdir()
            begin = time.monotonic()
            found = scenario(Tally(place, environment), folder / "data")
            rows.append(f"| {title} | {found} | {time.monotonic() - begin:.0f} |")
            print(rows[-1], flush=True)
    if set(asked) == set(names):
        text = "## Hard cases of long runs\n\n`tiny` over shuffled epochs with TensorBoard files; every resumed or disturbed run is " \
               "compared with an undisturbed one: parameters, moments, metrics, event files.\n\n" + "\n".join(rows)
        measure.write("hard", text, f"tools/hard.py --kills {options.kills} --minutes {options.minutes:g}")


if __name__ == "__main__":
    main()
