"""kill -9 at random moments of a 60-step run that saves at every step: `latest` is always complete and the resumed run
ends in the bits of the uninterrupted one (trap O18). TALLY_KILLS sets how many moments (default 5)."""
import json
import os
import random
import shutil
import time

from conftest import Tally

KILLS = int(os.environ.get("TALLY_KILLS", "5"))
STEPS = 60


def words_for(prepared):
    return ["train", "--preset", "tiny", "--data", prepared / "data", "--steps", STEPS, "--batch", 2,
            "--model.dropout", "0.1", "--checkpoint_every", 1, "--keep_last", 2, "--eval_every", 20,
            "--eval_batches", 4, "--log_every", 1, "--sample_every", 30, "--sample_tokens", 5]


def timeless(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in lines]


def check_latest(run):
    """What `latest` names is there in full, whatever the moment of the kill. True when there is one."""
    if not (run / "latest").exists():
        return False
    folder = run / "checkpoints" / (run / "latest").read_text().strip()
    state = json.loads((folder / "state.json").read_text())
    assert folder.name == f"step_{state['step']:08d}"
    assert (folder / "state.json").stat().st_size == 8192
    for name, size in state["files"].items():
        assert (folder / name).stat().st_size == size
    if (run / "best").exists():
        assert (run / "checkpoints" / (run / "best").read_text().strip() / "state.json").exists()
    return True


def check_end(run, whole):
    assert (run / "latest").read_text() == f"step_{STEPS:08d}\n"
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        part = f"checkpoints/step_{STEPS:08d}/{name}"
        assert (run / part).read_bytes() == (whole / part).read_bytes(), name
    assert timeless(run) == timeless(whole)
    assert (run / "best").read_text() == (whole / "best").read_text()
    assert {p.name for p in (run / "checkpoints").iterdir()} == {p.name for p in (whole / "checkpoints").iterdir()}


def test_resume_after_kill_at_random_moments(tally, prepared):
    words = words_for(prepared)
    begin = time.monotonic()
    tally.run(*words, "--out", "whole")
    duration = time.monotonic() - begin
    whole, run = tally.folder / "whole", tally.folder / "run"
    moments = random.Random(os.environ.get("TALLY_KILL_SEED", "1"))
    killed = inside_a_save = 0
    while killed < KILLS:
        resume = ["--resume"] if (run / "config.json").exists() else []
        started = tally.start(*words, "--out", "run", *resume)
        time.sleep(moments.uniform(0, duration / 2))
        if started.poll() is None:
            started.kill()
            killed += 1
        started.communicate()
        if started.returncode == 0:  # it came to its end: a new run for the moments that are left
            check_end(run, whole)
            shutil.rmtree(run)
            continue
        assert started.returncode == -9
        check_latest(run)
        checkpoints = run / "checkpoints"
        inside_a_save += checkpoints.exists() and any(p.name.startswith(".") for p in checkpoints.iterdir())
    resume = ["--resume"] if (run / "config.json").exists() else []
    tally.run(*words, "--out", "run", *resume)
    check_end(run, whole)
    print(f"{killed} kills, {inside_a_save} of them inside a save")


def test_torn_newest_checkpoint_resumes_from_the_earlier_one(tally, prepared):
    words = words_for(prepared)
    tally.run(*words, "--out", "run")
    run = tally.folder / "run"
    newest = run / f"checkpoints/step_{STEPS:08d}"
    before = {p.name: p.read_bytes() for p in newest.iterdir()}
    torn = newest / "model.safetensors"
    torn.write_bytes(before["model.safetensors"][:1000])
    line = tally.error("train", "--out", "run", "--resume")
    missing = len(before["model.safetensors"]) - 1000
    earlier = f"run/checkpoints/step_{STEPS - 1:08d}"
    assert f"model.safetensors: {missing} bytes are missing" in line and line.endswith(earlier)
    tally.run("train", "--resume-from", earlier)
    assert {p.name: p.read_bytes() for p in newest.iterdir()} == before


def test_two_threads_resume_what_one_began(tally, prepared):
    words = [*words_for(prepared), "--schedule.kind", "constant"]
    tally.run(*words, "--out", "whole")
    one = Tally(tally.folder, {**tally.environment, "TALLY_THREADS": "1"})
    one.run(*words, "--out", "run", "--steps", 20)
    two = Tally(tally.folder, {**tally.environment, "TALLY_THREADS": "2"})
    two.run(*words, "--out", "run", "--resume")
    check_end(tally.folder / "run", tally.folder / "whole")
