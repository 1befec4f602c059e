"""The PyTorch side of the contest of ops in bench/vs_torch.py.

    torch_ops.py VALUES.safetensors --threads N --seconds S     (JSON lines: op, seconds of a call, largest difference)

VALUES holds inputs and results as `tally bench ops --save` writes them, "rms_norm 64 x 4096/a". Each op is called as
its user calls it, without gradients; AdamW in place, fused. Its result is compared with Tally's before it is timed.
"""
import argparse
import json
import statistics
import time

import safetensors.torch
import torch
import torch.nn.functional as F

EPS = 1e-5
# By Tally's name; inputs are named a, b, c in the order of the op's arguments.
OPS = {
    "rms_norm": lambda t: F.rms_norm(t["a"], t["b"].shape, t["b"], EPS),
    "layer_norm": lambda t: F.layer_norm(t["a"], t["b"].shape, t["b"], t["c"], EPS),
    "softmax": lambda t: torch.softmax(t["a"], -1),
    "swiglu": lambda t: F.silu(t["a"]) * t["b"],
    "gelu_tanh": lambda t: F.gelu(t["a"], approximate="tanh"),
}


class AdamW:
    """One fused step from given moments, in place; the numbers are those of tally/train/bench_cases.cpp."""

    def __init__(self, t):
        self.param = torch.nn.Parameter(t["param"].clone())
        self.param.grad = t["grad"]
        self.optimizer = torch.optim.AdamW([self.param], lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
        self.optimizer.state[self.param] = {"step": torch.tensor(0.0), "exp_avg": t["m"].clone(), "exp_avg_sq": t["v"].clone()}

    def __call__(self):
        self.optimizer.step()
        return self.param.detach()


def median_seconds(call, budget):
    times = []
    end = time.perf_counter() + budget
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("values")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cases = {}
    for key, value in safetensors.torch.load_file(options.values).items():
        case, name = key.split("/")
        cases.setdefault(case, {})[name] = value
    with torch.no_grad():
        for case, t in cases.items():
            op = case.split(" ")[0]
            call = AdamW(t) if op == "adamw" else lambda t=t, op=op: OPS[op](t)
            difference = (call() - t["out"]).abs().max().item()
            print(json.dumps({"case": case, "seconds": median_seconds(call, options.seconds), "difference": difference,
                              "largest": t["out"].abs().max().item(), "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
