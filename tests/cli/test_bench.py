"""bench/vs_torch.py without PyTorch: what it refuses, and its table."""
import json
import os
import subprocess
import sys

from conftest import PROGRAM, ROOT

sys.path.insert(0, str(ROOT / "bench"))
import vs_torch  # noqa: E402


def refuse(tmp_path, *words):
    done = subprocess.run([sys.executable, ROOT / "bench/vs_torch.py", "--tally", PROGRAM, *words], capture_output=True,
                          text=True, env={**os.environ, "TALLY_PEERS": str(tmp_path / "peers")})
    assert done.returncode == 2
    return done.stderr.splitlines()[-1]


def test_what_it_refuses(tmp_path):
    assert "unknown contest chess" in refuse(tmp_path, "--text", "a.txt", "--only", "chess")
    assert "has no PyTorch; run tools/peers.sh" in refuse(tmp_path, "--text", "a.txt")


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
    assert {r["case"] for r in lines} == {"rms_norm", "layer_norm", "softmax"}
    for r in lines:
        assert r["seconds"] > 0 and r["share_of_roof"] > 0 and r["bytes_read"] > 0, r
    text = tally.run(*words, "--filter", "adamw", "--save", "values.safetensors")
    assert "adamw 64 x 4096" in text and "furthest from the roof: adamw" in text
    header = (tally.folder / "values.safetensors").read_bytes()
    names = set(json.loads(header[8:8 + int.from_bytes(header[:8], "little")]))
    assert {f"adamw 64 x 4096/{name}" for name in ("param", "grad", "m", "v", "out")} <= names


def test_bench_ops_refuses(tally):
    assert "no case has the name" in tally.error("bench", "ops", "--filter", "chess")
    assert "there is no 'huge'" in tally.error("bench", "ops", "--sizes", "huge")
