#!/usr/bin/env python3
"""Attention on a Hopper card against PyTorch's: causal, bf16, 16,384 tokens, hidden 2048, forward and backward.

    bench/attention_vs_torch_cuda.py [--rounds 3] > FILE
    bench/attention_vs_torch_cuda.py --publish FILE     writes the lines of FILE, from a GPU host, into docs/benchmarks.md

Two pairs: the kernels for Hopper against cuDNN's attention, and those for every card from 8.0 on (TALLY_CUDA_ATTENTION=
mma) against FlashAttention-2. First both sides of a pair compute one sequence a shape from the same tensors, and
results and gradients must agree; then rounds in turn, each program a median of rounds of calls back to back; figures
are medians over the rounds.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from contest import ROOT, call, json_lines, say

sys.path.insert(0, str(ROOT / "tools"))
import measure  # noqa: E402

TOKENS, HIDDEN = 16384, 2048
SHAPES = [(t, d) for d in (64, 128) for t in (1024, 4096, 16384)]
# Name: TALLY_CUDA_ATTENTION, PyTorch's backend, the least of PyTorch's time over Tally's.
PAIRS = {"hopper": ("", "CUDNN_ATTENTION", 0.95), "mma": ("mma", "FLASH_ATTENTION", 0.6)}
CALLS, INNER, TOLERANCE = 10, 3, 0.02  # tolerance: of the largest value


def words(shapes):
    return [f"{t}x{d}" for t, d in shapes]


def tally(options, path, *flags):
    text, _ = call([options.tally, "bench", "attention", "--device", "cuda", "--dtype", "bf16", "--hidden", HIDDEN, "--json", *flags],
                   {"TALLY_CUDA_ATTENTION": path})
    return json_lines(text)


def read_values(torch, path):
    """A safetensors file of bf16 tensors, on the card."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, item in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        begin, end = item["data_offsets"]
        dtype = {"BF16": torch.bfloat16, "F32": torch.float32}[item["dtype"]]  # gradients of leaves are f32
        flat = torch.frombuffer(bytearray(data[start + begin:start + end]), dtype=dtype)
        tensors[name] = flat.reshape(item["shape"]).cuda().bfloat16()
    return tensors


class Torch:
    def __init__(self):
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        self.torch, self.backends, self.choose = torch, SDPBackend, sdpa_kernel

    def attend(self, q, k, v):
        return self.torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both(self, q, k, v, grad):
        out = self.attend(q, k, v)
        return out, *self.torch.autograd.grad(out, (q, k, v), grad)

    def results(self, backend, values):
        heads_first = [values[name].transpose(1, 2) for name in ("q", "k", "v", "grad")]
        leaves = [x.detach().requires_grad_() for x in heads_first[:3]]
        with self.choose(getattr(self.backends, backend)):
            return [x.transpose(1, 2) for x in self.both(*leaves, heads_first[3])]

    def seconds(self, f):
        for _ in range(2):
            f()
        times = []
        for _ in range(INNER):
            start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(CALLS):
                f()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / CALLS / 1e3)
        return statistics.median(times)

    def measure(self, backend):
        rows = []
        for t, d in SHAPES:
            size = (TOKENS // t, t, HIDDEN // d, d)
            q, k, v, grad = (self.torch.randn(size, device="cuda", dtype=self.torch.bfloat16).transpose(1, 2) for _ in range(4))
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            with self.choose(getattr(self.backends, backend)):
                with self.torch.no_grad():
                    forward = self.seconds(lambda: self.attend(q, k, v))
                rows.append({"shape": f"{t}x{d}", "forward_seconds": forward, "seconds": self.seconds(lambda: self.both(*leaves, grad))})
        return rows


def check(options, torch, path, backend, folder):
    """One sequence of up to 4,096 tokens a shape: what Tally computed against PyTorch from the same tensors."""
    worst = 0.0
    for t, d in [(1024, 64), (1024, 128), (4096, 64), (4096, 128)]:
        file = folder / "values.safetensors"
        tally(options, path, "--tokens", t, "--shapes", f"{t}x{d}", "--calls", 1, "--rounds", 1, "--save", file)
        values = read_values(torch.torch, file)
        for name, want in zip(("out", "dq", "dk", "dv"), torch.results(backend, values)):
            difference = ((values[name].float() - want.float()).abs().max() / want.float().abs().max()).item()
            worst = max(worst, difference)
            if not difference <= TOLERANCE:
                sys.exit(f"{path or 'hopper'} {t}x{d}: {name} differs by {difference:.1e} of the largest value, nothing was timed")
    return worst


def run(options):
    torch = Torch()
    card = torch.torch.cuda.get_device_name()
    with tempfile.TemporaryDirectory() as folder:
        agree = {name: check(options, torch, path, backend, pathlib.Path(folder)) for name, (path, backend, _) in PAIRS.items()}
    say(f"results agree: {agree}")
    results = {}
    for i in range(options.rounds):
        for name, (path, backend, _) in PAIRS.items():
            ours = tally(options, path, "--tokens", TOKENS, "--calls", CALLS, "--rounds", INNER, "--shapes", *words(SHAPES))
            theirs = torch.measure(backend)
            torch.torch.cuda.empty_cache()
            for side, rows in (("tally", ours), ("torch", theirs)):
                for row in rows:
                    results.setdefault((name, row["shape"], side), []).append(row)
        say(f"round {i + 1} of {options.rounds}")
    rows = []
    for name, (path, backend, limit) in PAIRS.items():
        for shape in words(SHAPES):
            row = {"pair": name, "shape": shape, "torch_backend": backend, "limit": limit, "rounds": options.rounds, "card": card,
                   "torch": torch.torch.__version__, "difference": agree[name], "forward_flops": results[name, shape, "tally"][0]["forward_flops"]}
            for side in ("tally", "torch"):
                for key in ("forward_seconds", "seconds"):
                    row[f"{side}_{key}"] = statistics.median(r[key] for r in results[name, shape, side])
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def table(rows):
    lines = ["| kernels | length x head size | forward | PyTorch | ratio | forward + backward | TFLOP/s | PyTorch | ratio | at least |",
             "|" + " --- |" * 10]
    for r in rows:
        a, b, f, g = r["tally_forward_seconds"], r["torch_forward_seconds"], r["tally_seconds"], r["torch_seconds"]
        lines.append(f"| {r['pair']} | {r['shape'].replace('x', ' x ')} | {a * 1e3:.3f} ms | {b * 1e3:.3f} ms | {b / a:.2f} | {f * 1e3:.3f} ms | "
                     f"{3.5 * r['forward_flops'] / f / 1e12:.0f} | {g * 1e3:.3f} ms | {g / f:.2f} | {r['limit']} |")
    first = rows[0]
    return (f"## Attention against PyTorch on {first['card']}\n\nCausal, bf16, {TOKENS:,} tokens, hidden {HIDDEN}; ratios are PyTorch "
            f"{first['torch']}'s time over Tally's: cuDNN's kernels for `hopper`, FlashAttention-2's for `mma`.\n\n" + "\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--publish", type=pathlib.Path, metavar="FILE", help="standard output of a run on a GPU host")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tally", type=pathlib.Path, default=ROOT / "build" / "cuda" / "bin" / "tally")
    options = parser.parse_args()
    if options.publish:
        rows = [r for line in options.publish.read_text().splitlines() if line.startswith("{") for r in [json.loads(line)]]
        measure.write("attention-cuda", table(rows), f"bench/attention_vs_torch_cuda.py --rounds {rows[0]['rounds']}", rows[0]["card"])
        return
    rows = run(options)
    print(table(rows))
    below = [f"{r['pair']} {r['shape']}" for r in rows if r["torch_seconds"] / r["tally_seconds"] < r["limit"]]
    if below:
        sys.exit(f"below the limit: {', '.join(below)}")


if __name__ == "__main__":
    main()
