"""Fixtures of the tests of the program."""
import os

import pytest

from program import END, PROGRAM, ROOT, Tally, english, tree  # noqa: F401  (for the tests, which import them from here)


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """The machine's peaks are measured once for all tests."""
    return {**os.environ, "TALLY_CACHE": "", "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture
def tally(tmp_path, environment):
    return Tally(tmp_path, environment)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, environment):
    """Read-only: text.txt, tok/ (bpe, 400 entries), data/ and run/ (tiny, 12 steps), in one folder."""
    folder = tmp_path_factory.mktemp("prepared")
    t = Tally(folder, environment)
    (folder / "text.txt").write_text(english())
    t.run("tokenizer", "train", "--input", "text.txt", "--vocab-size", 400, "--special", END, "--out", "tok")
    t.run("data", "build", "--input", "text.txt", "--tokenizer", "tok", "--out", "data")
    t.run("train", "--preset", "tiny", "--data", "data", "--out", "run", "--steps", 12, "--batch", 2,
          "--checkpoint_every", 4, "--eval_every", 6, "--sample_tokens", 0)
    return folder
