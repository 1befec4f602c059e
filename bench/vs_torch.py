#!/usr/bin/env python3
"""Tally against PyTorch on this machine: training speed and memory of the same models on the same batches, single ops,
and matrix products against OpenBLAS and oneDNN.

    bench/vs_torch.py --text FILE [--only char,llama-30m,gpt2,ops,gemm] [--rounds 5] [--steps N] [--write]

PyTorch lives in the environment that tools/peers.sh makes (--peers FOLDER, $TALLY_PEERS, ~/.cache/tally/peers).
Before anything is timed, both programs take ten steps from the same weights, and every loss must agree to 1e-4 (with
the norm to clip by summed in f64 on PyTorch's side: torch_train.py says why). Then
rounds: a process of Tally, one of PyTorch eager, one of PyTorch compiled, again and again, each with the same number
of threads; figures are medians over the rounds of a process's median step, its first steps left out (PyTorch compiles
in them). Memory is the largest resident set of the whole process. `ops` and `gemm` are described in
kernel_contests.py. Prints tables and JSON lines; --write puts the tables into docs/benchmarks.md. Run it on an idle
machine.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import kernel_contests
from contest import ROOT, call, say

sys.path.insert(0, str(ROOT / "tools"))
import measure  # noqa: E402

# Preset: kind of tokenizer, flags of tally train, timed steps of a process.
PRESETS = {"char": ("char", ["--batch", "12"], 200),
           "llama-30m": ("bpe", ["--batch", "8", "--train.context", "256"], 8),
           "gpt2": ("bpe", ["--batch", "1", "--train.context", "256", "--model.vocab_size", "50257"], 8)}
TRAIN = ["--schedule.kind", "constant", "--lr", "3e-4", "--log_every", "1", "--eval_every", "0", "--sample_tokens", "0",
         "--checkpoint_every", "0"]
KERNELS = {"ops": (kernel_contests.ops, kernel_contests.ops_table), "gemm": (kernel_contests.gemm, kernel_contests.gemm_table)}
CHECKED, TOLERANCE = 10, 1e-4
WARM = 4  # steps of a process that are not timed: caches, the thread pool, PyTorch's compiler


class Contest:
    """One preset: its start weights, and a process of either program from them."""

    def __init__(self, options, folder, preset, data):
        self.options, self.folder, self.preset, self.data = options, folder, preset, data
        self.flags = ["--preset", preset, "--data", data, *PRESETS[preset][1], *TRAIN]
        self.threads = {"TALLY_THREADS": str(options.threads), "OMP_NUM_THREADS": str(options.threads),
                        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
        self.start = folder / f"{preset}-start"
        call([options.tally, "train", *self.flags, "--out", self.start, "--steps", "0"], self.threads)
        config = json.loads((self.start / "config.json").read_text())
        self.tokens = config["train"]["batch"] * (config["train"]["context"] or config["model"]["context"])

    def tally(self, steps):
        out = self.folder / f"{self.preset}-run"
        _, rss = call([self.options.tally, "train", *self.flags, "--out", out, "--steps", steps], self.threads)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        peak = json.loads((out / "ledger.json").read_text())["measured"]["peak_bytes"]
        subprocess.run(["rm", "-r", out], check=True)
        return {"losses": [x["loss"] for x in lines], "step_seconds": [self.tokens / x["tokens_per_second"] for x in lines],
                "max_rss_bytes": rss, "activation_bytes": peak["activation"], "workspace_bytes": peak.get("workspace", 0),
                "block_bytes": peak["total"]}

    def torch(self, mode, steps, *flags):
        text, rss = call([self.options.peers / "bin" / "python", ROOT / "bench" / "torch_train.py", self.start, "--data",
                          self.data, "--mode", mode, "--steps", steps, "--threads", self.options.threads,
                          *flags], self.threads)
        return {**json.loads(text.splitlines()[-1]), "max_rss_bytes": rss}

    def programs(self):
        return {"tally": self.tally, **{f"torch {m}": lambda n, m=m: self.torch(m, n) for m in self.options.modes}}

    def check(self):
        """Ten losses from the same weights on the same batches; returns the largest relative difference."""
        want = self.tally(CHECKED)["losses"]
        worst = 0
        for mode in self.options.modes:
            got = self.torch(mode, CHECKED, "--exact-norm")["losses"]
            differences = [abs(a - b) / abs(b) for a, b in zip(want, got)]
            worst = max([worst, *differences])
            if len(got) != CHECKED or len(want) != CHECKED or not worst <= TOLERANCE:
                sys.exit(f"{self.preset}: losses of Tally and PyTorch ({mode}) differ, nothing was timed\n{want}\n{got}")
        return worst

    def run(self):
        """A row a program; JSON lines go to standard output as they are made."""
        worst = self.check()
        say(f"{self.preset}: {CHECKED} losses agree to {worst:.1e}")
        saved = self.torch("eager", 1, "--saved")["saved_bytes"]
        steps = WARM + (self.options.steps or PRESETS[self.preset][2])
        rounds = {name: [] for name in self.programs()}
        for i in range(self.options.rounds):
            for name, program in self.programs().items():
                rounds[name].append(program(steps))
                seconds = statistics.median(rounds[name][-1]["step_seconds"][WARM:])
                say(f"{self.preset} round {i + 1}: {name} {seconds * 1e3:.2f} ms a step")
        rows = []
        for name, results in rounds.items():
            each = [statistics.median(r["step_seconds"][WARM:]) for r in results]
            row = {"contest": "train", "preset": self.preset, "program": name, "threads": self.options.threads,
                   "step_seconds": statistics.median(each), "tokens_per_second": self.tokens / statistics.median(each),
                   "rounds": each, "max_rss_bytes": statistics.median(r["max_rss_bytes"] for r in results),
                   "loss_difference": worst, "load_average": os.getloadavg()[0]}
            for key in ("activation_bytes", "workspace_bytes", "block_bytes", "imported_rss_bytes", "torch"):
                if key in results[0]:
                    row[key] = results[0][key]
            if name.startswith("torch"):
                row["saved_bytes"] = saved
            print(json.dumps(row), flush=True)
            rows.append(row)
        return rows


def mebibytes(n):
    return f"{n / 2**20:,.0f} MiB"


def train_table(rows):
    """The section of docs/benchmarks.md: each preset's programs and, for PyTorch, Tally's ratio to it."""
    lines = ["| model | program | tokens/s | step | Tally is faster by | largest resident set | tensors at the peak |",
             "|" + " --- |" * 7]
    ours = {r["preset"]: r["tokens_per_second"] for r in rows if r["program"] == "tally"}
    for r in rows:
        own = r["program"] == "tally"
        memory = f"{mebibytes(r['block_bytes'])}, {mebibytes(r['activation_bytes'] + r['workspace_bytes'])} of them " \
            "activations and workspace" if own else f"{mebibytes(r['saved_bytes'])} saved for the backward (eager)"
        ratio = "" if own else f"{ours[r['preset']] / r['tokens_per_second']:.2f}"
        lines.append(f"| {r['preset']} | {r['program']} | {r['tokens_per_second']:,.0f} | {r['step_seconds'] * 1e3:.1f} ms | "
                     f"{ratio} | {mebibytes(r['max_rss_bytes'])} | {memory} |")
    worst = max(r["loss_difference"] for r in rows)
    versions = {r["torch"] for r in rows if "torch" in r}
    return "## Training against PyTorch\n\nThe same weights, batches and AdamW in f32 on " \
           f"{rows[0]['threads']} threads; ten losses agree to {worst:.0e} (relative) before anything is timed. Medians of " \
           f"{len(rows[0]['rounds'])} interleaved rounds of whole processes. PyTorch {', '.join(sorted(versions))}: fused " \
           "q, k, v, its own attention and norms, fused AdamW; its resident set includes its libraries.\n\n" + "\n".join(lines)


def data_folders(options, folder, kinds):
    data = {}
    for kind in kinds:
        tokenizer, out = folder / f"tokenizer-{kind}", folder / f"data-{kind}"
        size = ["--vocab-size", "8192"] if kind == "bpe" else []
        measure.run(options.tally, "tokenizer", "train", "--input", options.text, "--kind", kind, *size, "--out", tokenizer)
        measure.run(options.tally, "data", "build", "--input", options.text, "--tokenizer", tokenizer, "--val-fraction",
                    ".1", "--out", out)
        data[kind] = out
    return data


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    everything = [*PRESETS, *KERNELS]
    parser.add_argument("--only", default=",".join(everything), help="contests, with commas: " + ", ".join(everything))
    parser.add_argument("--text", help="training text of the models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="timed steps of a process; 0: by preset")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--modes", default="eager,compile", help="of PyTorch in training")
    parser.add_argument("--tally", type=pathlib.Path, default=ROOT / "build" / "release" / "bin" / "tally")
    parser.add_argument("--peers", type=pathlib.Path, help="environment made by tools/peers.sh")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    options.only, options.modes = options.only.split(","), options.modes.split(",")
    if unknown := set(options.only) - set(everything):
        parser.error(f"unknown contest {', '.join(sorted(unknown))}; there are {', '.join(everything)}")
    if set(options.modes) - {"eager", "compile"}:
        parser.error("--modes are eager and compile")
    if set(options.only) & set(PRESETS) and not options.text:
        parser.error("the models need --text FILE")
    options.peers = options.peers or pathlib.Path(os.environ.get("TALLY_PEERS", pathlib.Path.home() / ".cache/tally/peers"))
    if options.only != ["gemm"] and not (options.peers / "bin" / "python").exists():
        parser.error(f"{options.peers} has no PyTorch; run tools/peers.sh {options.peers}")
    return options


def publish(options, name, table, only):
    print(table, flush=True)
    if options.write:
        measure.write(name, table, f"bench/vs_torch.py --only {only} --rounds {options.rounds}")


def main():
    options = arguments()
    if os.getloadavg()[0] > 0.5:
        say(f"the load average is {os.getloadavg()[0]:.1f}: other programs disturb these figures")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        presets = [p for p in options.only if p in PRESETS]
        data = data_folders(options, folder, {PRESETS[p][0] for p in presets})
        rows = []
        for preset in presets:
            rows += Contest(options, folder, preset, data[PRESETS[preset][0]]).run()
        if rows:
            publish(options, "torch", train_table(rows), ",".join(presets))
        for contest in [c for c in options.only if c in KERNELS]:
            run, table = KERNELS[contest]
            publish(options, contest, table(run(options, folder)), contest)


if __name__ == "__main__":
    main()
