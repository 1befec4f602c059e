"""kill -9 at random moments of a 60-step run that saves at every step: `latest` is always complete and the resumed run
ends in the bits of the uninterrupted one (trap O18). TALLY_KILLS sets how many moments (default 5)."""
import os

import long_runs
from program import Tally

KILLS = int(os.environ.get("TALLY_KILLS", "5"))
STEPS = 60


def words_for(prepared):
    return long_runs.words(prepared / "data", STEPS, checkpoint_every=1)


def test_resume_after_kill_at_random_moments(tally, prepared):
    print(long_runs.kills(tally, prepared / "data", KILLS, STEPS, os.environ.get("TALLY_KILL_SEED", "1")))


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
    long_runs.assert_same_end(tally.folder / "run", tally.folder / "whole")
