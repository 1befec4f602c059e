#!/usr/bin/env python3
"""Measures what docs/benchmarks.md states and writes it there, with command, commit, machine and date.

    tools/measure.py SECTION... [--tally build/release/bin/tally] [--text FILE] [--corpus FILE]

Sections: plan (plan = run and predicted step times), bpe (training a BPE vocabulary of 500), char (three seeds of the
nanoGPT character example on --text, tiny Shakespeare), decode (llama-124m against the bandwidth of memory), kernels
(row kernels on tensors beyond the last cache). Run it on an idle machine.
"""
import argparse
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = "# Measured figures\n\nEach section is written by a script (`tools/measure.py`, `bench/vs_torch.py`); it states its command, commit, machine and date.\n"


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def build_data(tally, text, kind, folder):
    run(tally, "tokenizer", "train", "--input", text, "--kind", kind, "--out", folder / "tokenizer")
    run(tally, "data", "build", "--input", text, "--tokenizer", folder / "tokenizer", "--val-fraction", ".1",
        "--out", folder / "data")
    return folder / "data"


# Preset, flags, steps: batch and context as the issues of this project name them.
PLANS = [("tiny", [], 60), ("char", ["--batch", "12"], 40),
         ("llama-30m", ["--batch", "8", "--model.vocab_size", "8192"], 5),
         ("gpt2", ["--batch", "1", "--train.context", "256", "--model.vocab_size", "50257"], 5)]


def plan(options, folder):
    data = build_data(options.tally, options.text, "char", folder)
    rows = ["| model | tokens a step | peak bytes, plan | measured | matmul FLOPs a step, plan | measured | other FLOPs, plan | "
            "measured | step, predicted | measured | predicted / measured |", "|" + " --- |" * 11]
    for name, flags, steps in PLANS:
        out = folder / f"run-{name}"
        run(options.tally, "train", "--preset", name, "--data", data, "--out", out, "--steps", steps, "--eval_every", "0",
            "--sample_tokens", "0", *flags)
        ledger = json.loads((out / "ledger.json").read_text())
        config = json.loads((out / "config.json").read_text())
        p, m = ledger["plan"], ledger["measured"]
        tokens = config["train"]["batch"] * (config["train"]["context"] or config["model"]["context"])
        cells = [name, f"{tokens:,}"]
        for a, b in ((p["peak_bytes"]["total"], m["peak_bytes"]["total"]),
                     (p["step"]["matmul FLOPs"], m["step"]["matmul FLOPs"]),
                     (p["step"]["other FLOPs"], m["step"]["other FLOPs"])):
            cells += [f"{a:,}", f"{b:,}"]
        cells += [f"{p['step_seconds'] * 1e3:.1f} ms", f"{m['step_seconds'] * 1e3:.1f} ms",
                  f"{p['step_seconds'] / m['step_seconds']:.2f}"]
        rows.append("| " + " | ".join(cells) + " |")
        for path in sorted(out.rglob("*.safetensors")):
            path.unlink()
    return "## Plan and run\n\nBytes are live block bytes where blocks are taken and given back; FLOPs are those of the launches " \
           "made (`tally_count_tests` holds every launch to a counted reference loop).\n\n" + "\n".join(rows)


def bpe(options, folder):
    if not options.corpus:
        sys.exit("bpe needs --corpus FILE")
    times = []
    for i in range(7):
        start = time.monotonic()
        run(options.tally, "tokenizer", "train", "--input", options.corpus, "--kind", "bpe", "--vocab-size", "500",
            "--special", "<|endoftext|>", "--out", folder / f"bpe{i}")
        times.append(time.monotonic() - start)
    merges = len((folder / "bpe0" / "merges.txt").read_text().splitlines()) - 1
    return f"## BPE training\n\n{pathlib.Path(options.corpus).name} to 500 entries, {merges} merges: " \
           f"{statistics.median(times) * 1e3:.0f} ms for the whole program, median of 7 (reference of CS336: 380 ms)."


def char(options, folder):
    data = build_data(options.tally, options.text, "char", folder)
    rows = ["| seed | validation loss, nats a character | bits a byte | minutes |", "| --- | --- | --- | --- |"]
    losses = []
    for seed in (1, 2, 3):
        out = folder / f"char{seed}"
        start = time.monotonic()
        run(options.tally, "train", "--preset", "char", "--data", data, "--out", out, "--steps", "2000", "--batch", "12",
            "--lr", "1e-3", "--min_ratio", "0.1", "--warmup", "100", "--beta2", "0.99", "--dropout", "0", "--seed", seed,
            "--eval_every", "2000", "--checkpoint_every", "0", "--sample_tokens", "0", *options.char_flags.split())
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        last = [line for line in lines if "val_loss" in line][-1]
        losses.append(last["val_loss"])
        rows.append(f"| {seed} | {last['val_loss']:.4f} | {last['bits_per_byte']:.4f} | {(time.monotonic() - start) / 60:.1f} |")
    mean = statistics.mean(losses)
    return "## The character example\n\n`char` (4 layers, 4 heads, d 128, context 64, no dropout) on tiny Shakespeare: 2,000 steps of " \
           "12 x 64 characters, learning rate 1e-3 to 1e-4 (cosine, 100 steps of warm-up), beta2 0.99; the last tenth in full, in " \
           f"windows of 64 that do not overlap. Mean of three seeds: **{mean:.4f}**. The preset's init_std was chosen with this validation loss in "\
           "view (0.02 gives 1.91).\n\n" + "\n".join(rows)


def decode(options, folder):
    rows = ["| weights | a token | tokens/s | bytes a token | read bandwidth | tokens/s at that bandwidth | of it |",
            "|" + " --- |" * 7]
    for line in run(options.tally, "bench", "decode", "--preset", "llama-124m", "--seconds", "10", "--json").splitlines():
        r = json.loads(line)
        rows.append(f"| {r['dtype']} | {r['token_seconds'] * 1e3:.2f} ms | {r['tokens_per_second']:.1f} | {r['bytes_read']:,.0f} | "
                    f"{r['read_bytes_per_second'] / 1e9:.1f} GB/s | {r['limit_tokens_per_second']:.1f} | "
                    f"{r['tokens_per_second'] / r['limit_tokens_per_second']:.2f} |")
    return "## Decoding\n\n`llama-124m`, one sequence, weights packed as for `generate`; the limit is a read of the bytes that a " \
           "token's launches read, measured in turn with the tokens.\n\n" + "\n".join(rows)


def kernels(options, folder):
    wanted = ["rms_norm", "layer_norm", "softmax", "swiglu", "adamw"]
    rows = ["| op | time | GB/s | a copy of as many bytes | of it |", "|" + " --- |" * 5]
    for line in run(options.tally, "bench", "ops", "--sizes", "memory", "--filter", *wanted, "--seconds", "3", "--json").splitlines():
        r = json.loads(line)
        rate = (r["bytes_read"] + r["bytes_written"]) / r["seconds"]
        if r["launches"]:
            rows.append(f"| {r['op']} {r['shape']} | {r['seconds'] * 1e3:.2f} ms | {rate / 1e9:.1f} | "
                        f"{r['copy_bytes'] / 1e9:.1f} GB/s | {rate / r['copy_bytes']:.2f} |")
    return "## Row kernels beyond the last cache\n\nf32; the copy takes its turn in the same process.\n\n" + "\n".join(rows)


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def write(name, text, command, where=None):
    """Puts a section into the page. `where`: the machine, if it was not this one."""
    commit = run("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip()
    cores = len(__import__("os").sched_getaffinity(0))
    stamp = f"`{command}`, commit {commit}, {where or f'{machine()} ({cores} threads)'}, {datetime.date.today()}"
    block = f"<!-- {name} -->\n{text}\n\n{stamp}\n<!-- end {name} -->\n"
    page = PAGE.read_text() if PAGE.exists() else HEAD
    pattern = re.compile(rf"<!-- {name} -->.*?<!-- end {name} -->\n", re.S)
    page = pattern.sub(lambda _: block, page) if pattern.search(page) else page + "\n" + block
    PAGE.write_text(page)
    print(block)


def main():
    parser = argparse.ArgumentParser()
    sections = {"plan": plan, "bpe": bpe, "char": char, "decode": decode, "kernels": kernels}
    parser.add_argument("sections", nargs="+", choices=sections)
    parser.add_argument("--tally", default=ROOT / "build" / "release" / "bin" / "tally", type=pathlib.Path)
    parser.add_argument("--text", help="training text of plan and char")
    parser.add_argument("--corpus", help="training text of bpe")
    parser.add_argument("--char_flags", default="", help="more flags for char")
    options = parser.parse_args()
    if {"plan", "char"} & set(options.sections) and not options.text:
        parser.error("plan and char need --text FILE")
    for name in options.sections:
        with tempfile.TemporaryDirectory() as folder:
            write(name, sections[name](options, pathlib.Path(folder)), f"tools/measure.py {name}")


if __name__ == "__main__":
    main()
