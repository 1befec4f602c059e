"""What happens to long runs (long_runs.py), in seconds; tools/hard.py has the large versions."""
import json
import os
import shutil
import struct
import subprocess

import pytest

import long_runs
from long_runs import Lines, events, latest, scalars, wait_for_steps, words
from program import PROGRAM, Tally


@pytest.fixture(scope="session")
def data(tmp_path_factory, environment):
    """A data folder of many small shards."""
    folder = tmp_path_factory.mktemp("shards")
    long_runs.prepare(Tally(folder, environment))
    assert len(list((folder / "data").glob("train_*.tok"))) > 5
    return folder / "data"


@pytest.fixture
def tally(tmp_path, environment):
    """On one thread: steps of milliseconds would wait for each other on a busy machine."""
    return Tally(tmp_path, {**environment, "TALLY_THREADS": "1"})


def on_a_small_disk(scenario, *arguments, **more):
    try:
        return scenario(*arguments, **more)
    except long_runs.NoDisk as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")


@pytest.mark.parametrize("roomy", [False, True])
def test_full_disk_does_not_end_a_run(tally, data, roomy):
    print(on_a_small_disk(long_runs.full_disk, tally, data, roomy=roomy))


def test_disk_that_stays_full(tally, data):
    print(on_a_small_disk(long_runs.full_disk_to_the_end, tally, data))


@pytest.mark.parametrize("damage", [
    lambda path: os.truncate(path, 300), lambda path: os.truncate(path, 0),
    lambda path: path.write_bytes(path.read_bytes()[:-8] + b"\xff" * 8), lambda path: shutil.copy(path.parent / "train_00000.tok", path)])
def test_shard_that_changes_under_a_run(tally, data, damage):
    print(long_runs.damaged_shard(tally, data, damage))


def test_shard_that_is_deleted_or_written_anew_is_read_on(tally, data):
    """An open file stays what it was; the same content is the same shard."""
    mine = tally.folder / "mine"
    shutil.copytree(data, mine)
    tally.run(*words("mine", 200), "--out", "whole")
    lines = Lines(tally.start(*words("mine", 200), "--out", "run"))
    wait_for_steps(tally.folder / "run", 20)
    content = (mine / "train_00001.tok").read_bytes()
    (mine / "train_00000.tok").unlink()
    (mine / "train_00001.tok").write_bytes(content)
    lines.end(0)
    long_runs.assert_same_end(tally.folder / "run", tally.folder / "whole")


def test_wall_clock_that_jumps(tally, data):
    print(long_runs.clock_back(tally, data))


def test_time_limit(tally, data):
    tally.run(*words(data, 500, checkpoint_every=0), "--out", "whole")
    command = words(data, 500, checkpoint_every=0, time_limit="0.5s")
    done = subprocess.run([PROGRAM, *map(str, command), "--out", "run"], cwd=tally.folder,
                          env=tally.environment, capture_output=True)
    assert done.returncode == 0 and b"the time limit of 0.5s would be passed by another step" in done.stderr
    assert b"go on by: tally train --out run --resume" in done.stdout
    stopped = int(latest(tally.folder / "run").name[5:])
    assert 0 < stopped < 500
    tally.run("train", "--out", "run", "--resume", "--time-limit=")  # without a limit
    long_runs.assert_same_end(tally.folder / "run", tally.folder / "whole")


@pytest.mark.parametrize("limit", ["2", "1h30", "-5m", "soon"])
def test_wrong_time_limit(tally, data, limit):
    assert f"train.time_limit is '{limit}'" in tally.error(*words(data, 5), f"--time-limit={limit}", "--out", "run")
    assert not (tally.folder / "run").exists()


def test_two_runs_cannot_share_a_folder(tally, data):
    lines = Lines(tally.start(*words(data, 10 ** 6), "--out", "run", "--time_limit", "1m"))
    wait_for_steps(tally.folder / "run", 3)
    assert tally.error("train", "--out", "run", "--resume") == "run: another process is training in this folder"
    assert "run: holds a run already" in tally.error(*words(data, 10), "--out", "run")
    lines.process.terminate()
    lines.end(0)
    stopped = int(latest(tally.folder / "run").name[5:])
    tally.run("train", "--out", "run", "--resume", "--steps", stopped + 1)


@pytest.mark.parametrize("close", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_readers_that_go_away_do_not_end_a_run(tally, data, close):
    command = words(data, 150, sample_every=10, sample_tokens=5)
    started = tally.start(*command, "--out", "run")
    wait_for_steps(tally.folder / "run", 5)
    for name in close:
        getattr(started, name).close()
        setattr(started, name, None)
    started.communicate(timeout=60)
    # Exit 1 only where the table for standard output could not be written; the run is whole all the same.
    assert started.returncode == (1 if "stdout" in close else 0)
    assert latest(tally.folder / "run").name == "step_00000150"
    assert scalars(tally.folder / "run")[-1][0] == 150


def test_tensorboard(tally, data):
    """The event files hold what metrics.jsonl holds, through resumes that go back."""
    tally.run(*words(data, 45), "--out", "run", "--schedule.kind", "constant", "--keep_last", 10)
    run = tally.folder / "run"
    tally.run("train", "--resume-from", "run/checkpoints/step_00000030", "--steps", 40)
    tally.run("train", "--out", "run", "--resume", "--steps", 60)
    wanted = [(line["step"], "train/" + key if key not in ("val_loss", "bits_per_byte") else
               {"val_loss": "validation/loss", "bits_per_byte": "validation/bits_per_byte"}[key], pytest.approx(value, rel=1e-6))
              for line in long_runs.timeless(run) for key, value in line.items() if key != "step"]
    assert scalars(run) == wanted and len(wanted) > 240
    found = list(events(run))
    assert [e[3] for e in found if 3 in e] == [b"brain.Event:2"] * 3
    assert [(e[2], e[7]) for e in found if 7 in e] == [(31, b"\x08\x01"), (41, b"\x08\x01")]
    assert all(struct.unpack("<d", e[1])[0] > 1.5e9 for e in found)


def test_epochs_are_logged(tally, data):
    tokens = json.loads((data / "data.json").read_text())["train"]["tokens"]
    windows = tokens // 64 - 1
    steps = windows // 2 + 2
    lines = Lines(tally.start(*words(data, steps), "--out", "run"))
    assert any(": 1 epoch of the training set is complete" in line for line in lines.end(0))
    metrics = [line for line in long_runs.timeless(tally.folder / "run") if "loss" in line]
    assert [line["epoch"] for line in metrics] == [pytest.approx(2 * line["step"] / windows) for line in metrics]


def test_order_cannot_change_within_a_run(tally, data):
    tally.run(*words(data, 5), "--out", "run")
    line = tally.error("train", "--out", "run", "--resume", "--order", "sequential", "--steps", 6)
    assert 'data.order is "shuffle" in the checkpoint and "sequential" here' in line


def test_run_from_before_there_was_an_order(tally, data):
    """A checkpoint without the key goes on at random places."""
    tally.run(*words(data, 5, order="random"), "--out", "run")
    config = tally.folder / "run/config.json"
    settings = json.loads(config.read_text())
    del settings["data"]["order"]
    config.write_text(json.dumps(settings))
    tally.run("train", "--out", "run", "--resume", "--steps", 6)
    assert latest(tally.folder / "run").name == "step_00000006"


def test_tiny_shards_are_refused(tally, data):
    line = tally.error("data", "build", data.parent / "text.txt", "--tokenizer", data.parent / "tok", "--shard-tokens", 1,
                       "--out", "new")
    assert "--shard-tokens" in line and "1024" in line
    assert not (tally.folder / "new").exists()


def test_memory_of_a_run_does_not_grow(tally, data):
    found = long_runs.steady_memory(tally, data, minutes=0.1)
    assert found["steps"] > 20 and found["RSS at the end"] < 1.1 * found["RSS early"] + 4096, found
