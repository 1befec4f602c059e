"""The contests of kernels in bench/vs_torch.py: single ops against PyTorch, matrix products against OpenBLAS and oneDNN."""
import json
import os
import sys

from contest import ROOT, call, json_lines, medians, say

OPS = ["rms_norm", "layer_norm", "softmax", "swiglu", "gelu_tanh", "adamw"]
SECONDS = 0.2       # of an op and round
TOLERANCE = 2e-5    # of the largest result: f32 sums of 4096 numbers in another order


def ops(options, folder):
    """Whole calls without gradients on 1 MiB tensors of rows of 4096, in rounds of one process of each program."""
    environment = {"TALLY_THREADS": str(options.threads), "OMP_NUM_THREADS": str(options.threads)}
    values = folder / "values.safetensors"
    tally = [options.tally, "bench", "ops", "--filter", *[name + " 64" for name in OPS], "--sizes", "cache", "--gradients",
             "false", "--json"]
    torch = [options.peers / "bin" / "python", ROOT / "bench" / "torch_ops.py", values, "--threads", options.threads]
    call([*tally, "--rounds", "1", "--seconds", "0", "--save", values], environment)
    versions = set()
    for r in json_lines(call([*torch, "--seconds", "0"], environment)[0]):
        versions.add(r["torch"])
        if not r["difference"] <= TOLERANCE * r["largest"]:
            sys.exit(f"{r['case']}: Tally and PyTorch differ by {r['difference']:.2e}, nothing was timed")
    ours, theirs = {}, {}
    for i in range(options.rounds):
        for r in json_lines(call([*tally, "--seconds", SECONDS], environment)[0]):
            ours.setdefault(f"{r['case']} {r['shape']}", []).append(r["call_seconds"])
        for r in json_lines(call([*torch, "--seconds", SECONDS], environment)[0]):
            theirs.setdefault(r["case"], []).append(r["seconds"])
        say(f"ops round {i + 1}")
    a, b = medians(ours), medians(theirs)
    rows = [{"contest": "ops", "case": case, "threads": options.threads, "tally_seconds": a[case], "torch_seconds": b[case],
             "ratio": b[case] / a[case], "torch": versions.copy().pop(), "load_average": os.getloadavg()[0]} for case in b]
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


def ops_table(rows):
    lines = ["| op | Tally | PyTorch | Tally is faster by |", "|" + " --- |" * 4]
    for r in rows:
        lines.append(f"| {r['case']} | {r['tally_seconds'] * 1e6:.0f} us | {r['torch_seconds'] * 1e6:.0f} us | "
                     f"{r['ratio']:.2f} |")
    return "## Ops against PyTorch\n\nWhole calls without gradients in f32 on 1 MiB tensors, " \
           f"{rows[0]['threads']} threads; results are compared first. PyTorch {rows[0]['torch']}, eager; its SwiGLU is " \
           "`silu(g) * u`, its AdamW the fused one.\n\n" + "\n".join(lines)


def gemm(options, folder):
    """Builds gemm_peers into build/peers and runs it on all threads and on one."""
    build = ROOT / "build" / "peers"
    call(["cmake", "-S", ROOT / "bench", "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"], {})
    call(["cmake", "--build", build, "--target", "gemm_peers"], {})
    rows = []
    for threads in dict.fromkeys([options.threads, 1]):
        for row in json_lines(call([build / "gemm_peers", threads, options.rounds], {})[0]):
            rows.append({**row, "load_average": os.getloadavg()[0]})
            print(json.dumps(rows[-1]), flush=True)
        say(f"gemm on {threads} threads")
    return rows


def gemm_table(rows):
    """A table a number of threads: a row a product, a column a program, and Tally's best against the best of the others."""
    text = "## Matrix products against OpenBLAS and oneDNN\n\ny (M, N) = x (M, K) W^T in f32, GFLOP/s; packed: the weight " \
           "laid out in advance. Medians of interleaved rounds; results are compared first. OpenBLAS runs its " \
           f"{rows[0]['openblas_core']} kernels.\n"
    for threads in dict.fromkeys(r["threads"] for r in rows):
        products = {}
        for r in rows:
            if r["threads"] == threads:
                products.setdefault((r["m"], r["n"], r["k"]), {})[r["program"]] = r["gflops"]
        programs = list(next(iter(products.values())))
        text += f"\n{threads} thread{'s' if threads > 1 else ''}\n\n| M x N x K | " + " | ".join(programs) + \
                " | plain: Tally / best | packed: Tally / best |\n|" + " --- |" * (len(programs) + 3) + "\n"
        for (m, n, k), rates in products.items():
            plain = rates["tally"] / max(rates["openblas"], rates["onednn"])
            packed = rates["tally packed"] / max(rates["openblas"], rates["onednn"], rates["onednn packed"])
            text += f"| {m} x {n} x {k} | " + " | ".join(f"{rates[p]:.1f}" for p in programs) + \
                    f" | {plain:.2f} | {packed:.2f} |\n"
    return text.rstrip("\n")
