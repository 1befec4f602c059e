"""tally train and generate."""
import json
import re
import signal
import time

import pytest

from conftest import Tally

TRAIN = ["train", "--preset", "tiny", "--batch", 2, "--sample_tokens", 0]


def model_bytes(run):
    name = (run / "latest").read_text().strip()
    return (run / "checkpoints" / name / "model.safetensors").read_bytes()


def metrics(run):
    """Lines without what a clock says."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k in ("step", "loss", "val_loss", "grad_norm", "lr")} for line in lines]


def test_run_folder(prepared):
    run = prepared / "run"
    names = {p.name for p in run.iterdir() if not p.name.startswith(".")}
    assert {"config.json", "tokenizer", "metrics.jsonl", "ledger.json", "checkpoints", "latest", "best"} <= names
    ledger = json.loads((run / "ledger.json").read_text())
    for part in ("peak_bytes", "step"):
        assert set(ledger["difference"][part].values()) == {0}, ledger["difference"]
    config = json.loads((run / "config.json").read_text())
    assert config["tally_version"] and config["train"]["matmul"] == ledger["environment"]["matmul"] == "f32"
    assert [line["step"] for line in metrics(run)] == sorted(line["step"] for line in metrics(run))


def test_dry_run_prints_the_plan_and_writes_nothing(tally, prepared):
    text = tally.run(*TRAIN, "--data", prepared / "data", "--out", "run", "--dry-run")
    assert "parameters" in text and "matmul FLOPs" in text and "predicted: " in text
    assert list(tally.folder.iterdir()) == []


def test_two_runs_and_thread_counts_have_the_same_bits(tally, prepared):
    for threads in ("1", "2"):
        one = Tally(tally.folder, {**tally.environment, "TALLY_THREADS": threads})
        one.run(*TRAIN, "--data", prepared / "data", "--out", f"run{threads}", "--steps", 5)
    assert model_bytes(tally.folder / "run1") == model_bytes(tally.folder / "run2")
    assert metrics(tally.folder / "run1") == metrics(tally.folder / "run2")


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_save_and_exit(tally, prepared, which):
    words = [*TRAIN, "--data", prepared / "data", "--out", "run", "--eval_every", 0]
    # Under nohup a hang-up is ignored, in the program as well; here it is not.
    started = tally.start(*words, "--steps", 100000, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    begin = time.monotonic()
    log = tally.folder / "run/metrics.jsonl"
    while time.monotonic() - begin < 60 and not (log.exists() and log.stat().st_size):
        time.sleep(0.05)
    started.send_signal(which)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 0, err
    assert b"go on by: tally train --out run --resume" in out
    stopped = int((tally.folder / "run/latest").read_text().strip().removeprefix("step_"))
    assert 0 < stopped < 100000
    tally.run("train", "--out", "run", "--resume", "--steps", stopped + 2, "--sample_tokens", 0)
    assert (tally.folder / "run/latest").read_text().strip() == f"step_{stopped + 2:08d}"


def test_generate(tally, prepared):
    words = ["generate", "--model", prepared / "run", "--prompt", "And the king", "--max-tokens", 12]
    text = tally.run(*words, "--seed", 3)
    assert text.startswith("And the king") and text == tally.run(*words, "--seed", 3)
    seeds = {tally.run(*words, "--seed", seed) for seed in range(1, 6)}
    assert len(seeds) > 1
    greedy = tally.run(*words, "--temperature", 0)
    assert greedy == tally.run(*words, "--top-k", 1)
    checkpoint = prepared / "run/checkpoints" / (prepared / "run/latest").read_text().strip()
    assert greedy == tally.run("generate", "--model", checkpoint, *words[3:], "--temperature", 0)
    found = json.loads(tally.run(*words, "--json"))
    assert found["step"] == 12 and found["tokens"] <= 12
    assert "parameters" in tally.run(*words, "--dry-run")


def test_generate_goes_beyond_the_context(tally, prepared):
    found = json.loads(tally.run("generate", "--model", prepared / "run", "--max-tokens", 150, "--json"))
    assert found["tokens"] == 150 or found["finish"] == "end"


def test_generate_stops_at_a_string(tally, prepared):
    whole = json.loads(tally.run("generate", "--model", prepared / "run", "--temperature", 0, "--max-tokens", 40,
                                 "--json"))["text"]
    stop = whole[len(whole) // 2:][:3]
    cut = json.loads(tally.run("generate", "--model", prepared / "run", "--temperature", 0, "--max-tokens", 40,
                               f"--stop={stop}", "--json"))
    assert cut["text"] == whole[:whole.index(stop)] and cut["finish"] == "stop"


def test_samples_are_words_of_the_text(tally, prepared):
    """What the demo shows in minutes, in seconds: at least half of the words are words of the training text."""
    tally.run(*TRAIN, "--data", prepared / "data", "--out", "run", "--steps", 150, "--lr", "0.003", "--batch", 4,
              "--eval_every", 0)
    text = tally.run("generate", "--model", "run", "--max-tokens", 200, "--seed", 1, "--temperature", "0.8",
                     "--prompt", "And")
    known = set(re.findall(r"[a-z]+", (prepared / "text.txt").read_text().lower()))
    words = re.findall(r"[a-z]+", text.lower())
    assert len(words) > 50
    assert sum(word in known for word in words) >= len(words) / 2, text


def test_profile(tally, prepared):
    words = [*TRAIN, "--data", prepared / "data", "--eval_every", 0, "--steps", 6]
    text = tally.run(*words, "--out", "run", "--profile", "steps=3")
    assert "profile of 3 steps" in text and "outside kernels" in text and "adamw" in text
    assert "predicted" in text and "between two launches" in text
    profile = json.loads((tally.folder / "run/profile.json").read_text())
    ledger = json.loads((tally.folder / "run/ledger.json").read_text())["measured"]["step"]
    keys = {"matmul_flops": "matmul FLOPs", "other_flops": "other FLOPs", "bytes_read": "bytes read",
            "bytes_written": "bytes written"}
    assert {name: sum(e[key] for e in profile["entries"]) for key, name in keys.items()} == ledger
    assert profile["steps"] == 3
    assert 0 < sum(e["seconds"] for e in profile["entries"]) <= profile["step_seconds"]
    assert 0 < profile["idle_seconds"] <= profile["step_seconds"] - profile["kernel_seconds"] + 1e-9
    assert all(e["predicted_seconds"] > 0 for e in profile["entries"])
    assert sum(e["predicted_seconds"] for e in profile["entries"]) == pytest.approx(profile["predicted_seconds"])
    trace = json.loads((tally.folder / "run/trace.json").read_text())
    events = trace["traceEvents"]
    assert [e["name"] for e in events if e["cat"] == "step"] == ["step 2", "step 3", "step 4"]
    assert all(e["ph"] == "X" and e["dur"] >= 0 and isinstance(e["ts"], float) for e in events)
    assert len(events) == 3 + 3 * sum(e["launches"] for e in profile["entries"])
    tally.run(*words, "--out", "plain")
    assert model_bytes(tally.folder / "run") == model_bytes(tally.folder / "plain")
    assert not (tally.folder / "plain/profile.json").exists()


def test_profile_refuses_what_it_cannot_do(tally, prepared):
    words = [*TRAIN, "--data", prepared / "data", "--out", "run", "--steps", 3]
    assert "write --profile steps=N" in tally.error(*words, "--profile", "often")
    assert "train.steps 3 is too few" in tally.error(*words, "--profile", 3)
    assert not (tally.folder / "run").exists()


def test_a_card_is_planned_for_where_there_is_none(tally):
    base = ["train", "--preset", "tiny", "--dry-run"]
    card, cpu = tally.run(*base, "--device", "cuda"), tally.run(*base)
    assert "total" in card and card != cpu
    # bf16 parameters step as f32 masters: 4 bytes more of optimizer for each
    half = tally.run(*base, "--device", "cuda", "--model.dtype", "bf16")
    number = lambda text, name: int(next(l for l in text.splitlines() if l.split()[:1] == [name]).split()[1].replace(",", ""))
    assert number(half, "optimizer") > 1.45 * number(card, "optimizer")


@pytest.mark.parametrize("device, said", [
    ("gpu", "unknown device 'gpu'"), ("cuda:99", "N from 0 to 63"), ("cuda:-1", "unknown device"), ("meta", "a run needs cpu")])
def test_devices_that_cannot_run(tally, device, said):
    assert said in tally.error("train", "--preset", "tiny", "--dry-run", "--device", device)


def test_tf32_is_an_option_of_cards(tally):
    base = ["train", "--preset", "tiny", "--dry-run"]
    assert "train.matmul tf32: needs train.device cuda" in tally.error(*base, "--matmul", "tf32")
    assert tally.run(*base, "--device", "cuda", "--matmul", "tf32") == tally.run(*base, "--device", "cuda")
    assert "it must be one of f32, tf32" in tally.error(*base, "--matmul", "f16")


def test_f64_stays_with_the_cpu(tally):
    assert "f64 is the CPU's" in tally.error("train", "--preset", "tiny", "--dry-run", "--device", "cuda", "--model.dtype", "f64")
