"""tokenizer train, encode, decode and data build."""
import json
import struct

import pytest

from conftest import END, english, tree

TEXT = "Grüße aus Köln, 東京 and 🙂!\n\n  two  spaces\ttab\r\n" + END + "naïve café\n" * 20


@pytest.fixture
def files(tally):
    (tally.folder / "t.txt").write_text(TEXT, newline="")
    return tally


def train(tally, kind, out="tok", *more):
    size = ["--vocab-size", 300] if kind == "bpe" else []
    return tally.run("tokenizer", "train", "--input", "t.txt", "--kind", kind, *size, "--special", END, "--out", out,
                     *more)


@pytest.mark.parametrize("kind", ["bpe", "byte", "char"])
@pytest.mark.parametrize("name", ["-", "ids.txt", "ids", "ids.npy", "ids.u16", "ids.bin", "ids.u32", "ids.i32",
                                  "ids.tok"])
def test_round_trip(files, kind, name):
    train(files, kind)
    if name == "-":
        ids = files.bytes("tokenizer", "encode", "--tokenizer", "tok", "--input", "t.txt")
        assert ids.count(b"\n") == 1 and all(word.isdigit() for word in ids.split())
        text = files.bytes("tokenizer", "decode", "--tokenizer", "tok", "-", input=ids)
    else:
        files.run("tokenizer", "encode", "--tokenizer", "tok", "--input", "-", "--out", name, input=TEXT.encode())
        text = files.bytes("tokenizer", "decode", "--tokenizer", "tok", "--input", name)
    assert text == TEXT.encode()


def test_decode_to_a_file_and_of_a_named_type(files):
    train(files, "bpe")
    files.run("tokenizer", "encode", "--tokenizer", "tok", "t.txt", "--out", "ids.u16")
    (files.folder / "ids.u16").rename(files.folder / "other")
    files.run("tokenizer", "decode", "--tokenizer", "tok", "other:u16", "--out", "back.txt")
    assert (files.folder / "back.txt").read_bytes() == TEXT.encode()


def test_special_tokens_as_text(files):
    train(files, "bpe")
    ids = files.run("tokenizer", "encode", "--tokenizer", "tok", "-", input=END.encode()).split()
    plain = files.run("tokenizer", "encode", "--tokenizer", "tok", "-", "--special", "false", input=END.encode())
    assert ids == ["0"] and len(plain.split()) > 1


def test_tokenizer_is_not_overwritten_unasked(files):
    train(files, "bpe")
    before = tree(files.folder)
    assert "--overwrite" in files.error("tokenizer", "train", "--input", "t.txt", "--kind", "char", "--out", "tok")
    assert tree(files.folder) == before
    train(files, "char", "tok", "--overwrite")
    assert json.loads((files.folder / "tok/tokenizer_config.json").read_text())["kind"] == "char"


@pytest.mark.parametrize("words", [
    ["tokenizer", "train", "--input", "t.txt", "--vocab-size", "300", "--out", "new"],
    ["tokenizer", "encode", "--tokenizer", "tok", "--input", "t.txt", "--out", "new.npy"],
    ["tokenizer", "decode", "--tokenizer", "tok", "--input", "ids.u16", "--out", "new"],
    ["data", "build", "--tokenizer", "tok", "--input", "t.txt", "--out", "new"],
])
def test_dry_run_writes_nothing(files, words):
    train(files, "bpe")
    files.run("tokenizer", "encode", "--tokenizer", "tok", "t.txt", "--out", "ids.u16")
    before = tree(files.folder)
    said = files.run(*words, "--dry-run")
    assert "would read" in said and "would write" in said and "bytes)" in said
    assert tree(files.folder) == before and not (files.folder / "new").exists()


def test_data_build(tally):
    for name in ("a", "b", "c"):
        (tally.folder / f"{name}.txt").write_text(english(50) + name)
    tally.run("tokenizer", "train", "--input", "*.txt", "--vocab-size", 300, "--special", END, "--out", "tok")
    said = tally.run("data", "build", "--input", "[ab].txt", "c.txt", "--tokenizer", "tok", "--val-fraction", ".3",
                     "--out", "data")
    assert "train" in said and "val" in said
    info = json.loads((tally.folder / "data/data.json").read_text())
    assert (info["train"]["documents"], info["val"]["documents"]) == (2, 1)
    header = (tally.folder / "data/train_00000.tok").read_bytes()[:64]
    assert header[:8] == b"TALLYTOK" and struct.unpack("<Q", header[16:24])[0] == info["train"]["tokens"]
    val = tally.run("tokenizer", "decode", "--tokenizer", "tok", "--input", "data/val_00000.tok")
    assert val == english(50) + "c" + END


def test_data_from_standard_input_by_separator(tally):
    text = "".join(f"document {i} says this\n---\n" for i in range(10))
    (tally.folder / "t.txt").write_text(text)
    tally.run("tokenizer", "train", "t.txt", "--kind", "byte", "--out", "tok")
    tally.run("data", "build", "-", "--separator", "\n---\n", "--tokenizer", "tok", "--val-fraction", ".2", "--out",
              "data", input=text.encode())
    info = json.loads((tally.folder / "data/data.json").read_text())
    assert (info["train"]["documents"], info["val"]["documents"]) == (8, 2)
    assert tally.bytes("tokenizer", "decode", "--tokenizer", "tok", "data/val_00000.tok") == \
        b"document 8 says thisdocument 9 says this"


def test_same_input_same_bytes(files):
    for out in ("one", "two"):
        train(files, "bpe", out)
        files.run("data", "build", "t.txt", "--tokenizer", out, "--out", f"data_{out}")
    assert tree(files.folder / "data_one") == tree(files.folder / "data_two")
