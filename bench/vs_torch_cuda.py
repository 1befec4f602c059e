#!/usr/bin/env python3
"""Tally against PyTorch on a card: training steps of the same models on the same batches, everything included.

    bench/vs_torch_cuda.py DATA [--only gpt2-b64,gpt2-b4,char,llama-336m] [--rounds 3] [--char-data DATA] > FILE
    bench/vs_torch_cuda.py --publish FILE     writes the lines of FILE, from a GPU host, into docs/benchmarks.md

DATA are folders made by `tally data build`: a vocabulary of at most 32,000, and for `char` one of characters. Tally computes in bf16 with f32 masters,
PyTorch under autocast with f32 parameters; both clip, run AdamW and load their batches. Before anything is timed both
take ten steps from the same weights and the losses must agree to 1 % (bf16). Then rounds of processes in turn; figures
are medians over the rounds of a process's median step, its first steps left out.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from contest import ROOT, call, say

sys.path.insert(0, str(ROOT / "tools"))
import measure  # noqa: E402

# Name: preset and flags, PyTorch's modes, timed steps, the limit of this backend's first slice in ms.
GPT2 = ["--preset", "gpt2", "--model.vocab_size", "50304", "--train.context", "1024"]
CONTESTS = {
    "gpt2-b64": ([*GPT2, "--batch", "64"], ["compile"], 30, 130, 122),
    "gpt2-b4": ([*GPT2, "--batch", "4"], ["compile", "graphs"], 100, 12, 10.8),
    "char": (["--preset", "char", "--model.n_layers", "6", "--model.d_model", "384", "--model.n_heads", "6",
              "--model.n_kv_heads", "6", "--model.d_ff", "1536", "--model.context", "256",
              "--batch", "64"], ["compile"], 100, 6, 10.1),
    "llama-336m": (["--preset", "llama-336m", "--batch", "16"], ["compile"], 20, 175, 169),
}
TRAIN = ["--schedule.kind", "constant", "--lr", "1e-4", "--log_every", "1", "--eval_every", "0", "--sample_tokens", "0",
         "--checkpoint_every", "0", "--model.dtype", "bf16", "--device", "cuda"]
CHECKED, TOLERANCE, WARM = 10, 0.01, 8


class Contest:
    def __init__(self, options, folder, name):
        self.options, self.folder, self.name = options, folder, name
        flags, self.modes, self.steps, self.limit, self.known = CONTESTS[name]
        self.data = options.char_data if name == "char" else options.data
        self.flags = [*flags, "--data", self.data, *TRAIN]
        self.start = folder / f"{name}-start"
        call([options.tally, "train", *self.flags, "--out", self.start, "--steps", "0"], {})
        config = json.loads((self.start / "config.json").read_text())
        self.tokens = config["train"]["batch"] * (config["train"]["context"] or config["model"]["context"])

    def tally(self, steps):
        out = self.folder / f"{self.name}-run"
        call([self.options.tally, "train", *self.flags, "--out", out, "--steps", steps], {})
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        ledger = json.loads((out / "ledger.json").read_text())
        subprocess.run(["rm", "-r", out], check=True)
        return {"losses": [x["loss"] for x in lines], "step_seconds": [self.tokens / x["tokens_per_second"] for x in lines],
                "peak_bytes": ledger["measured"]["peak_bytes"]["total"], "planned_bytes": ledger["plan"]["peak_bytes"]["total"],
                "predicted_seconds": ledger["plan"]["step_seconds"]}

    def torch(self, mode, steps):
        text, _ = call([self.options.python, ROOT / "bench" / "torch_train.py", self.start, "--data", self.data,
                        "--mode", mode, "--steps", steps, "--threads", "8", "--device", "cuda"], {})
        return json.loads(text.splitlines()[-1])

    def run(self):
        want, got = self.tally(CHECKED)["losses"], self.torch("eager", CHECKED)["losses"]
        worst = max(abs(a - b) / abs(b) for a, b in zip(want, got))
        if not worst <= TOLERANCE:
            sys.exit(f"{self.name}: losses of Tally and PyTorch differ, nothing was timed\n{want}\n{got}")
        say(f"{self.name}: {CHECKED} losses agree to {worst:.1e}")
        programs = {"tally": self.tally, **{f"torch {m}": lambda n, m=m: self.torch(m, n) for m in self.modes}}
        results = {name: [] for name in programs}
        for i in range(self.options.rounds):
            for name, program in programs.items():
                r = program(WARM + self.steps)
                results[name].append((statistics.median(r["step_seconds"][WARM:]), r))
                say(f"{self.name} round {i + 1}: {name} {results[name][-1][0] * 1e3:.2f} ms")
        rows = []
        for name, all_rounds in results.items():
            seconds, r = statistics.median(s for s, _ in all_rounds), all_rounds[0][1]
            row = {"contest": self.name, "rounds": self.options.rounds, "program": name, "step_seconds": seconds, "tokens_per_second": self.tokens / seconds,
                   "peak_bytes": r["peak_bytes"], "limit_ms": self.limit, "known_ms": self.known, "loss_difference": worst}
            for key in ("planned_bytes", "predicted_seconds", "card", "torch"):
                if key in r:
                    row[key] = r[key]
            print(json.dumps(row), flush=True)
            rows.append(row)
        return rows


def table(rows, card):
    lines = ["| contest | program | step | tokens/s | peak of tensors | limit, scaled | planned bytes | predicted |", "|" + " --- |" * 8]
    for r in rows:
        best = min(x["step_seconds"] for x in rows if x["contest"] == r["contest"] and x["program"] != "tally")
        own = r["program"] == "tally"
        limit = f"{r['limit_ms'] * best * 1e3 / r['known_ms']:.1f} ms" if own else ""
        plan = f"{r['planned_bytes']:,}" if own else ""
        predicted = f"{(r.get('predicted_seconds') or 0) * 1e3:.1f} ms" if own else ""
        lines.append(f"| {r['contest']} | {r['program']} | {r['step_seconds'] * 1e3:.2f} ms | {r['tokens_per_second']:,.0f} | "
                     f"{r['peak_bytes']:,} | {limit} | {plan} | {predicted} |")
    return f"## Training against PyTorch on {card}\n\nLimits are the issue's, scaled by PyTorch's figure here over the known one.\n\n" \
           + "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=pathlib.Path, nargs="?")
    parser.add_argument("--char-data", type=pathlib.Path)
    parser.add_argument("--publish", type=pathlib.Path, metavar="FILE", help="standard output of a run on a GPU host")
    parser.add_argument("--only", default=",".join(CONTESTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tally", type=pathlib.Path, default=ROOT / "build" / "cuda" / "bin" / "tally")
    parser.add_argument("--python", default=sys.executable, help="one with PyTorch")
    options = parser.parse_args()
    if options.publish:
        rows = [json.loads(line) for line in options.publish.read_text().splitlines() if line.startswith("{")]
        card = next(r["card"] for r in rows if "card" in r)
        names = ",".join(dict.fromkeys(r["contest"] for r in rows))
        measure.write("torch-cuda", table(rows, card),
                      f"bench/vs_torch_cuda.py DATA --only {names} --rounds {rows[0].get('rounds', 1)}", card)
        return
    if options.data is None:
        parser.error("name a data folder")
    names = options.only.split(",")
    if "char" in names and options.char_data is None:
        parser.error("char needs --char-data DATA")
    if unknown := set(names) - set(CONTESTS):
        parser.error(f"unknown contest {', '.join(sorted(unknown))}; there are {', '.join(CONTESTS)}")
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for name in names for row in Contest(options, pathlib.Path(folder), name).run()]
    print(table(rows, next(r["card"] for r in rows if "card" in r)))


if __name__ == "__main__":
    main()
