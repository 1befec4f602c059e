"""tokenizer convert: every format from every other, and what is said when it cannot be."""
import json

import pytest

from conftest import END, tree

TEXT = "Grüße aus Köln, 東京 and 🙂!\n\n  two  spaces\ttab\r\n" + "naïve café 12345\n" * 20


@pytest.fixture
def folder(tally):
    (tally.folder / "t.txt").write_text(TEXT, newline="")
    tally.run("tokenizer", "train", "--input", "t.txt", "--kind", "bpe", "--vocab-size", 300, "--special", END, "--out", "tok")
    return tally


def ids(tally, name):
    return tally.run("tokenizer", "encode", "--tokenizer", name, "t.txt")


def test_there_and_back(folder):
    folder.run("tokenizer", "convert", "tok", "t.json")
    assert json.loads((folder.folder / "t.json").read_text())["model"]["type"] == "BPE"
    folder.run("tokenizer", "convert", "t.json", "back")
    assert tree(folder.folder / "back") == tree(folder.folder / "tok")
    folder.run("tokenizer", "convert", "tok", "pair", "--to", "gpt2")
    assert sorted(p.name for p in (folder.folder / "pair").iterdir()) == ["merges.txt", "vocab.json"]
    assert ids(folder, "tok") == ids(folder, "pair") == ids(folder, "t.json")


def test_tiktoken_needs_a_pattern(folder):
    folder.run("tokenizer", "convert", "tok", "t.tiktoken")
    assert "--pattern" in folder.error("tokenizer", "convert", "t.tiktoken", "other")
    folder.run("tokenizer", "convert", "t.tiktoken", "other", "--pattern", "gpt2", "--special", END + "=0")
    assert ids(folder, "other") == ids(folder, "tok")
    assert tree(folder.folder / "other") == tree(folder.folder / "tok")


def test_nothing_is_overwritten_or_done_unasked(folder):
    folder.run("tokenizer", "convert", "tok", "t.json", "--dry-run")
    assert not (folder.folder / "t.json").exists()
    (folder.folder / "t.json").write_text("mine")
    assert "--overwrite" in folder.error("tokenizer", "convert", "tok", "t.json")
    assert (folder.folder / "t.json").read_text() == "mine"
    assert "name two" in folder.error("tokenizer", "convert", "tok")
