"""tokenizer info: tokenizers side by side on a text."""
import json

import pytest

from conftest import END

TEXT = "the cat sat on the mat, the hat and the bat.\n" * 20


@pytest.fixture
def files(tally):
    (tally.folder / "t.txt").write_text(TEXT)
    (tally.folder / "other.txt").write_text("the dog sat: é\n")
    for kind, more in [("bpe", ["--vocab-size", 300]), ("byte", []), ("char", []), ("word", [])]:
        tally.run("tokenizer", "train", "t.txt", "--kind", kind, *more, "--special", END, "--out", kind)
    return tally


def info(tally, *words):
    lines = tally.run("tokenizer", "info", "bpe", "byte", "char", "word", *words, "--json", "--seconds", 0).splitlines()
    return {row["kind"]: row for row in map(json.loads, lines)}


def test_figures_are_those_of_the_ids(files):
    rows = info(files, "--text", "t.txt")
    for kind, row in rows.items():
        ids = list(map(int, files.run("tokenizer", "encode", "--tokenizer", kind, "t.txt").split()))
        assert row["tokens"] == len(ids) and row["entries_used"] == len(set(ids)) and row["unknown"] == 0
        assert row["bytes_per_token"] == pytest.approx(len(TEXT) / len(ids)) and row["megabytes_per_second"] > 0
    assert rows["byte"]["bytes_per_token"] == rows["char"]["bytes_per_token"] == 1 < rows["bpe"]["bytes_per_token"]
    assert rows["byte"]["entries"] == 257 and rows["char"]["code_point_range"] == ord("t") + 1
    assert rows["char"]["entries"] == len(set(TEXT)) + 1 and rows["bpe"]["pattern"] == "gpt2"
    assert rows["bpe"]["special_tokens"] == 1 and END not in [token["text"] for token in rows["bpe"]["longest"]]
    lengths = [len(token["text"]) for token in rows["word"]["longest"]]
    assert lengths == sorted(lengths, reverse=True) and len(lengths) == 5


def test_unknown_rate(files):
    rows = info(files, "--text", "other.txt")
    assert rows["char"]["unknown"] == 3 and rows["char"]["unknown_rate"] == pytest.approx(3 / 15)  # g, :, é
    assert rows["word"]["unknown"] == 3 and 0 < rows["word"]["unknown_rate"] < 1                   # dog, :, é
    assert rows["byte"]["unknown"] == rows["bpe"]["unknown"] == 0


def test_table(files):
    text = files.run("tokenizer", "info", "bpe", "char", "--text", "t.txt", "other.txt", "--seconds", 0)
    assert "bytes/token" in text and "by code point" in text and "longest entries" in text
    alone = files.run("tokenizer", "info", "bpe")
    assert "bytes/token" not in alone and "longest entries" in alone


def test_errors(files):
    assert "no tokenizer" in files.error("tokenizer", "info")
    assert "absent" in files.error("tokenizer", "info", "absent")
    assert "absent.txt" in files.error("tokenizer", "info", "bpe", "--text", "absent.txt")
    (files.folder / "empty.txt").write_text("")
    assert "nothing" in files.error("tokenizer", "info", "bpe", "--text", "empty.txt")
