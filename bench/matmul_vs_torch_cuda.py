#!/usr/bin/env python3
"""Tally's matrix products against torch.matmul on a card: the layers of GPT-2 124M and of a Llama of 336 M parameters.

    python3 bench/matmul_vs_torch_cuda.py [--tally build/cuda/bin/tally] [--dtype bf16] [--filter gpt2] [--rounds 3]

Rounds of `tally bench matmul --json` and of PyTorch in this process, in turn, on the same shapes and layouts with random
operands; both flush the second cache before every call and take medians of CUDA events. The figure of a product is the
median over the rounds, the ratio PyTorch's time over Tally's: above 1 Tally is faster. Tally's weight gradients are f32,
PyTorch's of the operands' dtype. Its first round chooses algorithms unless they are known (docs/cuda.md). Ends with 1
when a ratio is below --limit.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys

from contest import ROOT, call, json_lines, say

LIMIT = 0.97


def ours(options):
    """{(name, pass): result} of a process."""
    words = [options.tally, "bench", "matmul", "--device", "cuda", "--dtypes", options.dtype, "--filter", *options.filter,
             "--rounds", options.calls, "--json"]
    return {(r["name"], r["pass"]): r for r in json_lines(call(words, {})[0])}


class Torch:
    def __init__(self, dtype):
        import torch
        self.torch = torch
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        self.dtype = torch.bfloat16 if dtype == "bf16" else torch.float32
        self.flush = torch.empty(4 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")

    def operand(self, rows, columns):
        torch = self.torch
        piece = torch.rand(1000003, device="cuda").sub_(0.5).to(self.dtype)
        count = -(-rows * columns // piece.numel())
        return piece.repeat(count)[:rows * columns].view(rows, columns)

    def seconds(self, r, calls):
        """Median of a product as Tally describes it: x and g by rows, w (out, in)."""
        torch, m, n, k = self.torch, r["m"], r["n"], r["k"]
        a = self.operand(k, m).t() if r["pass"] == "dw" else self.operand(m, k)
        b = self.operand(n, k).t() if r["pass"] == "y" else self.operand(k, n)
        c = torch.empty(m, n, dtype=self.dtype, device="cuda")
        torch.matmul(a, b, out=c)
        times = []
        for i in range(calls):
            self.flush.fill_(i % 7)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            torch.matmul(a, b, out=c)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e-3)
        return statistics.median(times)

    def round(self, products, calls):
        times = {key: self.seconds(r, calls) for key, r in products.items()}
        self.torch.cuda.empty_cache()
        return times


def compared(tally, torch):
    """{(name, pass): [seconds a round]} of both -> rows."""
    rows = []
    for (name, way), times in tally.items():
        a, b = statistics.median(times), statistics.median(torch[name, way])
        rows.append({"name": name, "pass": way, "tally_seconds": a, "torch_seconds": b, "ratio": b / a})
    return rows


def table(rows, limit):
    lines = [f"{'product':<13}{'':<4}{'M x N x K':<24}{'tally':>11}{'TFLOP/s':>9}{'torch':>11}{'ratio':>8}"]
    for r in rows:
        flops = 2e-12 * r.get("m", 0) * r.get("n", 0) * r.get("k", 0)
        shape = f"{r['m']} x {r['n']} x {r['k']}" if flops else ""
        lines.append(f"{r['name']:<13}{r['pass']:<4}{shape:<24}{r['tally_seconds'] * 1e6:>8.1f} us{flops / r['tally_seconds']:>9.1f}"
                     f"{r['torch_seconds'] * 1e6:>8.1f} us{r['ratio']:>8.3f}" + (f"  below {limit}" if r["ratio"] < limit else ""))
    mean = math.exp(statistics.fmean(math.log(r["ratio"]) for r in rows))
    return "\n".join(lines) + f"\nratio: torch's time over Tally's; geometric mean {mean:.3f}, smallest {min(r['ratio'] for r in rows):.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tally", type=pathlib.Path, default=ROOT / "build" / "cuda" / "bin" / "tally")
    parser.add_argument("--dtype", choices=["f32", "tf32", "bf16"], default="bf16")
    parser.add_argument("--filter", nargs="+", default=["gpt2", "llama"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=15, help="timed of a product and round")
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--json", action="store_true", help="a JSON line a product instead of the table")
    options = parser.parse_args()
    torch = Torch(options.dtype)
    tally_times, torch_times, products = {}, {}, {}
    for i in range(options.rounds):
        products = ours(options)
        for key, r in products.items():
            tally_times.setdefault(key, []).append(r["seconds"])
        for key, seconds in torch.round(products, options.calls).items():
            torch_times.setdefault(key, []).append(seconds)
        say(f"round {i + 1} of {options.rounds}")
    rows = [{**{x: products[r["name"], r["pass"]][x] for x in ("m", "n", "k", "dtype", "share_of_peak")}, **r}
            for r in compared(tally_times, torch_times)]
    if options.json:
        for r in rows:
            print(json.dumps(r), flush=True)
    else:
        print(table(rows, options.limit))
    return 1 if any(r["ratio"] < options.limit for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
