"""tally inspect."""
import json
import shutil
import struct

import pytest


def look(tally, *words):
    return json.loads(tally.run("inspect", *words, "--json"))


@pytest.mark.parametrize("preset, parameters", [
    ("gpt2", 124_439_808), ("gpt2-xl", 1_557_611_200), ("llama-336m", 336_118_784), ("llama-1b", 1_100_048_384),
    ("cs336-tinystories", 22_696_448)])
def test_model(tally, preset, parameters):
    found = look(tally, "model", "--preset", preset)
    assert found["parameters"] == parameters == sum(t["parameters"] for t in found["tensors"])
    assert f"{parameters:,} parameters" in tally.run("inspect", "model", "--preset", preset)


def forward_flops(layers, d, vocab, t, pairs):
    """Matrix products of a GPT-2 forward: 2 per multiply-add; attention over `pairs` of positions."""
    return layers * (2 * t * 12 * d * d + 4 * d * pairs) + 2 * t * d * vocab


def test_cost_under_both_attention_conventions(tally):
    found = look(tally, "cost", "--preset", "gpt2", "--batch", 1)
    forward = found["phases"]["forward"]
    assert forward["matmul_flops"] == forward_flops(12, 768, 50257, 1024, 1024 * 1025 // 2)
    assert forward["matmul_flops_full_attention"] == forward_flops(12, 768, 50257, 1024, 1024 * 1024)
    text = tally.run("inspect", "cost", "--preset", "gpt2", "--batch", 1, "--full-attention")
    assert f"{forward['matmul_flops_full_attention']:,}" in text


def test_cost_rows_sum_to_the_step(tally):
    for by in ("scope", "op", "phase"):
        found = look(tally, "cost", "--preset", "tiny", "--batch", 3, "--context", 32, "--by", by)
        assert found["tokens"] == 96
        for key in ("matmul_flops", "bytes_read", "launches"):
            assert sum(row[key] for row in found["rows"].values()) == found["step"][key]


def test_overrides_change_memory(tally):
    small = look(tally, "memory", "--preset", "tiny", "--batch", 1)
    large = look(tally, "memory", "--preset", "tiny", "--batch", 2, "--model.d_model", 128)
    for found in (small, large):
        assert sum(found["step"]["by_category"].values()) == found["step"]["bytes"]
        assert found["step"]["moment"].startswith(("forward", "backward", "optimizer"))
    assert large["step"]["bytes"] > 2 * small["step"]["bytes"] - 2 ** 20
    assert large["parameters"] > 2 * small["parameters"]
    assert "training step: the peak is in" in tally.run("inspect", "memory", "--preset", "tiny")


def test_too_long_context_is_refused(tally):
    assert "train.context 128 is longer than model.context 64" in \
        tally.error("inspect", "cost", "--preset", "tiny", "--context", 128)


def test_kernels_and_device(tally):
    found = look(tally, "kernels")
    assert found["cpu_isa"] in found["kernels"]["matmul"] and all(row["base"] for row in found["kernels"].values())
    assert look(tally, "device")["fma_flops"] > 1e8


def test_run_and_its_parts(tally, prepared):
    run = look(tally, "checkpoint", prepared / "run")
    assert run["kind"] == "run" and run["latest"] == "step_00000012"
    assert (run["step"], run["optimizer steps"], run["next micro-batch"]) == ("12", "12", "12")
    assert [row["state"] for row in run["rows"]] == ["complete"] * len(run["rows"])
    step = look(tally, "checkpoint", prepared / "run/checkpoints/step_00000012")
    assert step["kind"] == "checkpoint, complete" and step["step"] == "12"
    tensors = look(tally, "checkpoint", prepared / "run/checkpoints/step_00000012/model.safetensors")
    assert tensors["rows"][0] == {"tensor": "embed.weight", "dtype": "F32", "shape": "(400, 64)", "bytes": "102,400"}
    assert look(tally, "checkpoint", prepared / "data")["kind"] == "data"
    assert look(tally, "checkpoint", prepared / "tok")["entries"] == "400"
    assert look(tally, "checkpoint", prepared / "data/train_00000.tok")["checksums"] == "agree"
    assert look(tally, "model", "--model", prepared / "run")["parameters"] == \
        look(tally, "model", "--model", prepared / "run/checkpoints/step_00000012")["parameters"]


def test_run_whose_latest_checkpoint_is_torn(tally, prepared):
    shutil.copytree(prepared / "run", tally.folder / "run")
    (tally.folder / "run/checkpoints/step_00000012/optimizer.safetensors").write_bytes(b"")
    line = tally.error("inspect", "checkpoint", "run")
    assert "step_00000012/optimizer.safetensors: " in line and line.endswith("before it is run/checkpoints/step_00000008")
    (tally.folder / "run/latest").write_text("step_00000008\n")
    run = look(tally, "checkpoint", "run")
    assert run["step"] == "8" and run["rows"][-1]["state"].startswith("run/checkpoints/step_00000012/optimizer")


def test_ids_without_header(tally):
    (tally.folder / "x.u32").write_bytes(struct.pack("<4I", 5, 9, 70000, 1))
    found = look(tally, "checkpoint", "x.u32")
    assert (found["tokens"], found["lowest id"], found["highest id"]) == ("4", "1", "70,000")


@pytest.mark.parametrize("name, content, wanted", [
    ("x.safetensors", b"\xff" * 16, "x.safetensors"), ("x.safetensors", b"", "x.safetensors"),
    ("x.tok", b"TALLYTOK" + b"\x00" * 10, "x.tok"), ("x.npy", b"\x93NUMPY\x01", "x.npy"), ("x.npz", b"PK\x03\x04", "x.npz"),
    ("x.u16", b"123", "x.u16"), ("x.txt", b"hello", "x.txt: what it holds is not known")])
def test_wrong_files(tally, name, content, wanted):
    (tally.folder / name).write_bytes(content)
    assert wanted in tally.error("inspect", "checkpoint", name)


def test_missing_and_unknown_folder(tally):
    assert "no.tok" in tally.error("inspect", "checkpoint", "no.tok")
    (tally.folder / "empty").mkdir()
    assert "empty: holds no run" in tally.error("inspect", "checkpoint", "empty")
