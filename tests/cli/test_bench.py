"""tally bench, and bench/vs_torch.py without PyTorch: what it refuses, and its tables."""
import json
import os
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from conftest import PROGRAM, ROOT

sys.path.insert(0, str(ROOT / "bench"))
import attention_vs_torch_cuda  # noqa: E402
import kernel_contests  # noqa: E402
import matmul_vs_torch_cuda  # noqa: E402
import vs_torch  # noqa: E402


def refuse(tmp_path, *words):
    done = subprocess.run([sys.executable, ROOT / "bench/vs_torch.py", "--tally", PROGRAM, *words], capture_output=True,
                          text=True, env={**os.environ, "TALLY_PEERS": str(tmp_path / "peers")})
    assert done.returncode == 2
    return done.stderr.splitlines()[-1]


def test_what_it_refuses(tmp_path):
    assert "unknown contest chess" in refuse(tmp_path, "--text", "a.txt", "--only", "chess")
    assert "has no PyTorch; run tools/peers.sh" in refuse(tmp_path, "--text", "a.txt")
    assert "the models need --text" in refuse(tmp_path, "--only", "char,ops")


def test_peers_stay_outside_the_tree():
    done = subprocess.run([ROOT / "tools/peers.sh", ROOT / "build/peers"], capture_output=True, text=True)
    assert done.returncode == 2 and "lies in the source tree" in done.stderr


def test_table():
    common = {"preset": "char", "threads": 2, "rounds": [1, 2, 3], "loss_difference": 2e-6, "max_rss_bytes": 3 * 2**20}
    rows = [{**common, "program": "tally", "tokens_per_second": 3000.0, "step_seconds": 0.25, "block_bytes": 2**21,
             "activation_bytes": 2**20, "workspace_bytes": 0},
            {**common, "program": "torch eager", "tokens_per_second": 2000.0, "step_seconds": 0.375, "torch": "9.9",
             "saved_bytes": 5 * 2**20}]
    table = vs_torch.train_table(rows)
    assert "| char | tally | 3,000 | 250.0 ms |  | 3 MiB | 2 MiB, 1 MiB of them activations and workspace |" in table
    assert "| char | torch eager | 2,000 | 375.0 ms | 1.50 | 3 MiB | 5 MiB saved for the backward (eager) |" in table
    assert "agree to 2e-06" in table and "PyTorch 9.9" in table


def test_bench_ops(tally):
    words = ["bench", "ops", "--sizes", "cache", "--seconds", 0, "--rounds", 1]
    lines = [json.loads(line) for line in tally.run(*words, "--filter", "norm", "softmax", "--json").splitlines()]
    assert [(r["op"], r["phase"]) for r in lines[:2]] == [("rms_norm", "forward"), ("rms_norm_backward", "backward")]
    cases = {r["case"] for r in lines}
    assert {"rms_norm", "layer_norm", "softmax"} <= cases
    for r in lines:
        assert r["seconds"] > 0 and r["share_of_roof"] > 0 and r["bytes_read"] + r["bytes_written"] > 0, r
    text = tally.run(*words, "--filter", "adamw", "--save", "values.safetensors")
    assert "adamw 64 x 4096" in text and "furthest from the roof: adamw" in text
    header = (tally.folder / "values.safetensors").read_bytes()
    names = set(json.loads(header[8:8 + int.from_bytes(header[:8], "little")]))
    assert {f"adamw 64 x 4096/{name}" for name in ("param", "grad", "m", "v", "out")} <= names


def test_bench_attention(tally):
    words = ["bench", "attention", "--tokens", 96, "--hidden", 48, "--calls", 2, "--rounds", 2]
    lines = [json.loads(line) for line in tally.run(*words, "--shapes", "32x8", "96x24", "--json", "--save", "a.safetensors").splitlines()]
    assert [(r["shape"], r["forward_flops"]) for r in lines] == [("32x8", 3 * 6 * 32 * 33 // 2 * 4 * 8), ("96x24", 2 * 96 * 97 // 2 * 4 * 24)]
    assert all(r["seconds"] > r["forward_seconds"] > 0 for r in lines)
    header = (tally.folder / "a.safetensors").read_bytes()
    entries = json.loads(header[8:8 + int.from_bytes(header[:8], "little")])
    assert {n: entries[n]["shape"] for n in ("q", "k", "v", "grad", "out", "dq", "dk", "dv")} == dict.fromkeys(
        ("q", "k", "v", "grad", "out", "dq", "dk", "dv"), [3, 32, 6, 8])
    assert "(1, 96, 2, 24)" in tally.run(*words, "--shapes", "96x24")
    assert "'64' is not LENGTHxHEAD_SIZE" in tally.error("bench", "attention", "--shapes", "64")
    assert "not a multiple" in tally.error("bench", "attention", "--shapes", "100x64")


def test_attention_table():
    row = {"pair": "mma", "shape": "1024x64", "card": "a card", "torch": "9.9", "limit": 0.6, "forward_flops": 6.9e10,
           "tally_forward_seconds": 2e-4, "torch_forward_seconds": 1e-4, "tally_seconds": 8e-4, "torch_seconds": 6e-4}
    assert "| mma | 1024 x 64 | 0.200 ms | 0.100 ms | 0.50 | 0.800 ms | 302 | 0.600 ms | 0.75 | 0.6 |" in \
        attention_vs_torch_cuda.table([row])


def test_bench_ops_refuses(tally):
    assert "no case has the name" in tally.error("bench", "ops", "--filter", "chess")
    assert "there is no 'huge'" in tally.error("bench", "ops", "--sizes", "huge")
    assert "no case has the name" in tally.error("bench", "ops", "--sizes", "large")  # the CPU has none


SMALL = ["--preset", "tiny", "--batch", 2, "--context", 16, "--seconds", 0]


def test_bench_train(tally):
    found = json.loads(tally.run("bench", "train", *SMALL, "--json"))
    assert found["tokens"] == 32 and found["peak_bytes"] == found["planned_bytes"]
    assert 0 < found["profile"]["kernel_seconds"] <= found["profile"]["step_seconds"]
    text = tally.run("bench", "train", *SMALL)
    assert "32 tokens a step" in text and "outside kernels" in text


def test_bench_decode(tally):
    words = ["bench", "decode", "--preset", "tiny", "--seconds", 0, "--prompt", 4, "--tokens", 8]
    f32, bf16 = (json.loads(line) for line in tally.run(*words, "--json").splitlines())
    assert (f32["dtype"], bf16["dtype"]) == ("f32", "bf16") and f32["bytes_read"] > 1.5 * bf16["bytes_read"]
    assert "of limit" in tally.run(*words, "--dtypes", "bf16")
    assert "there is no 'f16'" in tally.error(*words, "--dtypes", "f16")


def test_bench_matmul(tally):
    words = ["bench", "matmul", "--rounds", 1, "--rows", 8]
    lines = [json.loads(line) for line in tally.run(*words, "--filter", "gpt2 proj", "--json").splitlines()]
    assert [(r["dtype"], r["pass"]) for r in lines] == [(d, p) for d in ("f32", "bf16") for p in ("y", "dx", "dw")]
    for r in lines:
        assert r["seconds"] > 0 and r["m"] * r["n"] * r["k"] == 8 * 768 * 768
        assert abs(r["tflops"] - 2e-12 * r["m"] * r["n"] * r["k"] / r["seconds"]) < 1e-9 * r["tflops"]
    text = tally.run(*words, "--shapes", "8x16x32", "4x4x4", "--dtypes", "f32")
    assert "8 x 16 x 32" in text and "of peak" in text and "measured" in text


@pytest.mark.parametrize("words, said", [
    (["--shapes", "8x8"], "written as MxNxK"), (["--dtypes", "f16"], "there is no 'f16'"),
    (["--dtypes", "tf32"], "tf32 is of CUDA's cards"), (["--filter", "chess"], "no product has such a name")])
def test_bench_matmul_refuses(tally, words, said):
    assert said in tally.error("bench", "matmul", *words)


def test_matmul_contest():
    rows = matmul_vs_torch_cuda.compared({("gpt2 fc", "y"): [2e-3, 1e-3, 3e-3], ("gpt2 fc", "dw"): [1e-3]},
                                         {("gpt2 fc", "y"): [1e-3, 3e-3, 1.9e-3], ("gpt2 fc", "dw"): [2e-3]})
    assert [r["ratio"] for r in rows] == [0.95, 2.0]
    table = matmul_vs_torch_cuda.table(rows, 0.97)
    assert "gpt2 fc      y" in table and "0.950  below 0.97" in table and "geometric mean 1.378" in table


def test_bench_roofline(tally):
    text = tally.run("bench", "roofline", *SMALL, "--svg", "roof.svg")
    assert text.splitlines()[-1] == "roof.svg"
    root = xml.etree.ElementTree.parse(tally.folder / "roof.svg").getroot()
    assert root.tag.endswith("svg") and "matmul" in "".join(root.itertext())
    assert "no --svg" in tally.error("bench", "roofline", *SMALL)


def test_kernel_tables():
    ops = kernel_contests.ops_table([{"case": "softmax 64 x 4096", "threads": 2, "tally_seconds": 1e-4,
                                      "torch_seconds": 2e-4, "ratio": 2.0, "torch": "9.9"}])
    assert "| softmax 64 x 4096 | 100 us | 200 us | 2.00 |" in ops
    rates = {"tally": 60.0, "tally packed": 90.0, "openblas": 50.0, "onednn": 40.0, "onednn packed": 100.0}
    rows = [{"m": 1, "n": 8, "k": 8, "threads": t, "program": p, "gflops": g / (3 - t), "openblas_core": "Haswell"}
            for t in (2, 1) for p, g in rates.items()]
    gemm = kernel_contests.gemm_table(rows)
    assert "| 1 x 8 x 8 | 60.0 | 90.0 | 50.0 | 40.0 | 100.0 | 1.20 | 0.90 |" in gemm
    assert "\n1 thread\n" in gemm and "| 30.0 | 45.0 |" in gemm
