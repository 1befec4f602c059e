"""Bad input: one clear line, exit code 1 or 2, and what was there is as before."""
import contextlib
import os
import random
import re
import resource
import shutil
import subprocess
import time

import pytest

import long_runs
from conftest import END, english, tree

BPE = ["tokenizer", "train", "--kind", "bpe", "--vocab-size", 300, "--out", "new"]


@pytest.fixture
def mine(tally, prepared):
    """A copy of the prepared folder that a test may damage."""
    shutil.copytree(prepared, tally.folder, dirs_exist_ok=True)
    return tally


# Text.

@pytest.mark.parametrize("words", [
    [*BPE, "--input"], ["data", "build", "--tokenizer", "tok", "--out", "new", "--input"],
    ["tokenizer", "encode", "--tokenizer", "tok", "--input"]])
def test_missing_text(mine, words):
    before = tree(mine.folder)
    assert "no.txt: no such file" in mine.error(*words, "no.txt")
    if "encode" not in words:
        assert "no*.txt: no file matches" in mine.error(*words, "no*.txt")
        assert "tok: is a folder" in mine.error(*words, "tok")
    assert tree(mine.folder) == before


@pytest.mark.parametrize("words", [BPE, ["data", "build", "--tokenizer", "tok", "--out", "new"]])
def test_empty_text(mine, words):
    (mine.folder / "empty.txt").write_text("")
    before = tree(mine.folder)
    assert "empty" in mine.error(*words, "--input", "empty.txt")
    mine.error(*words, "--input", "-", input=b"")
    assert tree(mine.folder) == before


def test_empty_text_has_no_tokens(mine):
    assert mine.run("tokenizer", "encode", "--tokenizer", "tok", "-", input=b"") == "\n"
    assert mine.run("tokenizer", "decode", "--tokenizer", "tok", "-", input=b"") == ""


def test_binary_text(mine):
    data = random.Random(2).randbytes(200_000)
    (mine.folder / "noise").write_bytes(data)
    mine.run(*BPE, "noise")
    mine.run("data", "build", "noise", "--tokenizer", "new", "--val-fraction", "0", "--out", "noise_data")
    back = mine.bytes("tokenizer", "decode", "--tokenizer", "new", "noise_data/train_00000.tok")
    assert back == data
    line = mine.error("tokenizer", "train", "--kind", "char", "noise", "--out", "chars")
    assert "noise" in line and "UTF-8" in line and "offset" in line
    assert not (mine.folder / "chars").exists()


@pytest.mark.parametrize("make", [lambda: b"a" * 3_000_000,
                                  lambda: bytes(random.Random(3).choices(b"abcdefgh", k=3_000_000)),
                                  lambda: " ".join(str(i) for i in range(400_000)).encode()])
def test_one_huge_line(mine, make):
    text = make()
    (mine.folder / "line").write_bytes(text)
    begin = time.monotonic()
    mine.run(*BPE, "line")
    mine.run("data", "build", "line", "--tokenizer", "new", "--val-fraction", "0", "--end_token=", "--out", "line_data")
    back = mine.bytes("tokenizer", "decode", "--tokenizer", "new", "line_data/train_00000.tok")
    assert back == text
    assert time.monotonic() - begin < 60


def test_character_the_tokenizer_lacks(mine):
    mine.run("tokenizer", "train", "text.txt", "--kind", "char", "--out", "chars")
    (mine.folder / "more.txt").write_text("And then ★")
    line = mine.error("data", "build", "more.txt", "--tokenizer", "chars", "--out", "new")
    assert "more.txt" in line and "★" in line
    assert not (mine.folder / "new").exists()


@pytest.mark.parametrize("size, specials, least", [(255, [], 256), (256, [END], 257), (1, ["a", "b"], 258)])
def test_vocabulary_too_small(mine, size, specials, least):
    more = ["--special", *specials] if specials else []
    line = mine.error("tokenizer", "train", "text.txt", "--vocab-size", size, *more, "--out", "new")
    assert f"at least {least}" in line
    assert not (mine.folder / "new").exists()


@pytest.mark.parametrize("name, content, wanted", [
    ("vocab.json", b"{", "vocab.json"), ("vocab.json", b'{"a": 0}', "vocab.json"), ("merges.txt", b"\xff\xff", "merges.txt"),
    ("tokenizer_config.json", b"[]", "tokenizer_config.json"), ("tokenizer_config.json", b'{"kind": "x"}', "kind")])
def test_damaged_tokenizer(mine, name, content, wanted):
    (mine.folder / "tok" / name).write_bytes(content)
    assert wanted in mine.error("tokenizer", "encode", "--tokenizer", "tok", "text.txt")


@pytest.mark.parametrize("text, wanted", [("1 two 3", "offset 2"), ("99999999999", "offset 0"), ("1 400", "400"),
                                          ("-1", "-1")])
def test_ids_that_are_none(mine, text, wanted):
    (mine.folder / "ids.txt").write_text(text)
    assert wanted in mine.error("tokenizer", "decode", "--tokenizer", "tok", "ids.txt")


# Shards, checkpoints.

TRAIN = ["train", "--preset", "tiny", "--data", "data", "--out", "new", "--steps", 2, "--sample_tokens", 0]


@pytest.mark.parametrize("keep", [0, 7, 255, 256, 300, -1, -9])
def test_torn_shard(mine, keep):
    for shard in ("train_00000.tok", "val_00000.tok"):
        path = mine.folder / "data" / shard
        whole = path.read_bytes()
        path.write_bytes(whole[:keep])
        line = mine.error(*TRAIN)
        assert shard in line
        assert not (mine.folder / "new/config.json").exists()
        assert shard in mine.error("inspect", "checkpoint", path)
        path.write_bytes(whole)


def test_shard_with_changed_tokens(mine):
    path = mine.folder / "data/train_00000.tok"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    assert "train_00000.tok" in mine.error("inspect", "checkpoint", path)
    assert "train_00000.tok" in mine.error("tokenizer", "decode", "--tokenizer", "tok", path)


def test_shard_of_another_tokenizer(mine):
    mine.run("tokenizer", "train", "text.txt", "--vocab-size", 350, "--out", "tok2")
    mine.run("data", "build", "text.txt", "--tokenizer", "tok2", "--out", "data2")
    assert "train_00000.tok" in mine.error("tokenizer", "decode", "--tokenizer", "tok", "data2/train_00000.tok")
    shutil.copy(mine.folder / "data2/val_00000.tok", mine.folder / "data/val_00000.tok")
    line = mine.error(*TRAIN)
    assert "val_00000.tok" in line and "tokenizer" in line
    before = tree(mine.folder / "run")
    line = mine.error("train", "--out", "run", "--resume", "--data", "data2", "--steps", 20)
    assert "tokenizer" in line or "vocab" in line
    assert tree(mine.folder / "run") == before


def test_vocabulary_smaller_than_the_data(mine):
    line = mine.error(*TRAIN, "--vocab_size", 100)
    assert "vocab" in line and not (mine.folder / "new/config.json").exists()


def test_data_too_short_for_the_context(mine):
    line = mine.error(*TRAIN, "--model.context", 100_000)
    assert "tokens" in line


def test_folder_without_data(mine):
    (mine.folder / "nothing").mkdir()
    assert "nothing" in mine.error("train", "--preset", "tiny", "--data", "nothing", "--out", "new")
    assert "absent" in mine.error("train", "--preset", "tiny", "--data", "absent", "--out", "new")


def test_run_folder_is_not_overwritten(mine):
    before = tree(mine.folder / "run")
    line = mine.error("train", "--preset", "tiny", "--data", "data", "--out", "run")
    assert "run" in line and "resume" in line
    assert tree(mine.folder / "run") == before


def test_checkpoint_of_another_model(mine):
    before = tree(mine.folder / "run")
    line = mine.error("train", "--out", "run", "--resume", "--d_model", 128, "--steps", 20)
    assert "model.d_model is 64 in the checkpoint and 128 here" in line
    assert tree(mine.folder / "run") == before
    mine.run("train", "--preset", "tiny", "--n_layers", 1, "--data", "data", "--out", "other", "--steps", 1,
             "--sample_tokens", 0)
    name = (mine.folder / "run/latest").read_text().strip()
    theirs = mine.folder / "other/checkpoints/step_00000001/model.safetensors"
    shutil.copy(theirs, mine.folder / f"run/checkpoints/{name}/model.safetensors")
    for words in (["generate", "--model", "run"], ["train", "--out", "run", "--resume", "--steps", 20]):
        assert "model.safetensors" in mine.error(*words)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_truncated_checkpoint(mine, name, keep):
    latest = (mine.folder / "run/latest").read_text().strip()
    path = mine.folder / "run/checkpoints" / latest / name
    path.write_bytes(path.read_bytes()[:keep])
    before = tree(mine.folder / "run")
    line = mine.error("train", "--out", "run", "--resume", "--steps", 20)
    assert name in line and "step_" in line
    assert tree(mine.folder / "run") == before
    assert name in mine.error("inspect", "checkpoint", path.parent)
    if name == "model.safetensors":
        assert name in mine.error("generate", "--model", "run")
        assert name in mine.error("inspect", "checkpoint", path)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_checkpoint_with_one_changed_bit(mine, name):
    folder = mine.folder / "run/checkpoints" / (mine.folder / "run/latest").read_text().strip()
    content = bytearray((folder / name).read_bytes())
    content[-5] ^= 1
    (folder / name).write_bytes(content)
    assert name in mine.error("train", "--out", "run", "--resume", "--steps", 20)
    if name.startswith("model"):
        assert "bytes have changed" in mine.error("generate", "--model", "run", "--prompt", "a")


def test_resume_beyond_the_steps_asked(mine):
    assert "beyond train.steps 5" in mine.error("train", "--out", "run", "--resume", "--steps", 5)


def test_device_in_place_of_a_file(mine):
    assert "/dev/zero: is a device" in mine.error("train", "--preset", "tiny", "--config", "/dev/zero")


def test_resume_without_a_run(mine):
    assert "nowhere" in mine.error("train", "--out", "nowhere", "--resume")


@pytest.mark.parametrize("words, wanted", [
    (["--top_p", "1.5"], "top_p"), (["--temperature", "-1"], "temperature"), (["--max_tokens", "-1"], "max_tokens"),
    (["--min_p", "nan"], "min_p"), (["--stop="], "stop"), (["--seed", "x"], "seed")])
def test_generate_out_of_range(mine, words, wanted):
    assert wanted in mine.error("generate", "--model", "run", *words)


@pytest.mark.parametrize("words, wanted", [
    (["--n_heads", 5], "model.n_heads"), (["--n_kv_heads", 3], "model.n_kv_heads"), (["--warmup", 100], "warmup"),
    (["--beta1", 1], "beta1"), (["--context", 1000], "context"), (["--dropout", 2], "dropout")])
def test_train_out_of_range(mine, words, wanted):
    if words[0] == "--context":
        words = ["--train.context", words[1]]
    assert wanted in mine.error(*TRAIN, *words)
    assert not (mine.folder / "new/config.json").exists()


@pytest.mark.parametrize("fraction", ["1", "-0.1", "1.1", "nan"])
def test_validation_fraction_out_of_range(mine, fraction):
    assert "val_fraction" in mine.error("data", "build", "text.txt", "--tokenizer", "tok", "--val-fraction", fraction,
                                        "--out", "new").replace("-", "_")


def test_more_memory_than_there_is(mine):
    line, details = mine.detailed_error(*TRAIN, "--d_model", 65536, "--n_heads", 1024, "--n_layers", 400)
    assert "this machine has" in line and "train.batch" in line
    assert "no smaller batch, context or preset was found that fits" in details[-1]
    assert not (mine.folder / "new/latest").exists()


def changes_of(details):
    """The flags that an error of memory names, each as a list of words, and its table's numbers by category."""
    at = next(i for i, line in enumerate(details) if line.startswith("a new run fits into "))
    peak = {line.split()[0]: int(line.split()[1].replace(",", "")) for line in details[1:at]}
    return [re.match(r"  (--.*?) {2,}", line).group(1).split() for line in details[at + 1:]], peak


def test_a_plan_that_does_not_fit_names_changes_that_do(mine):
    asked = {"--train.batch": 1 << 17, "--model.d_ff": 8192}
    command = lambda flags: [*TRAIN, *(word for flag in flags.items() for word in flag)]
    line, details = mine.detailed_error(*command(asked))
    assert "this machine has" in line
    changes, peak = changes_of(details)
    assert sum(bytes for name, bytes in peak.items() if name != "total") == peak["total"]
    assert {"parameter", "gradient", "optimizer", "activation"} <= set(peak)
    assert 1 <= len(changes) <= 3 and changes[0][0] == "--train.batch"
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for flags in changes:
        plan = mine.run(*command({**asked, **dict(zip(flags[::2], flags[1::2]))}), "--dry-run")
        total = next(l for l in plan.splitlines() if l.split()[:1] == ["total"])
        assert int(total.split()[1].replace(",", "")) <= memory, flags
    assert not (mine.folder / "new/config.json").exists()


def test_memory_that_runs_out_in_the_run(mine):
    limit = (400 << 20, 400 << 20)
    line, details = mine.detailed_error(*TRAIN, "--d_model", 256, "--n_heads", 4, "--n_layers", 4, "--batch", 256, code=1,
                                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    assert line.startswith("out of memory: the system has no ")
    changes, peak = changes_of(details)
    assert changes and peak["total"] > peak["activation"] > 0
    assert not (mine.folder / "new/latest").exists()


# Disks.

@contextlib.contextmanager
def small_disk(folder, kilobytes):
    """A tmpfs of this size; the test says so and ends where none can be mounted."""
    try:
        with long_runs.small_disk(folder, kilobytes) as disk:
            yield disk
    except long_runs.NoDisk as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")


def test_full_disk(mine):
    (mine.folder / "long.txt").write_text(english(20000))
    with small_disk(mine.folder / "disk", 200) as disk:
        (disk / "kept").write_bytes(b"k" * 60_000)
        for words in (["tokenizer", "encode", "--tokenizer", "tok", "long.txt", "--out", "disk/ids.u32"],
                      ["tokenizer", "encode", "--tokenizer", "tok", "long.txt", "--out", "disk/ids.tok"],
                      ["data", "build", "long.txt", "--tokenizer", "tok", "--out", "disk/data"]):
            line = mine.error(*words, code=1)
            assert "disk/" in line and "space" in line
            assert tree(disk) == {"kept": b"k" * 60_000}


WRITES = [(["tokenizer", "train", "text.txt", "--vocab-size", 300, "--out"], "tok"),
          (["tokenizer", "encode", "--tokenizer", "tok", "text.txt", "--out"], "ids.npy"),
          (["tokenizer", "decode", "--tokenizer", "tok", "data/val_00000.tok", "--out"], "text"),
          (["data", "build", "text.txt", "--tokenizer", "tok", "--out"], "data"),
          (["train", "--preset", "tiny", "--data", "data", "--steps", 1, "--out"], "run")]


@pytest.mark.parametrize("words, name", WRITES)
def test_unwritable_folder(mine, words, name):
    def refused(place):
        line = mine.error(*words, f"{place}/{name}", code=2)
        assert place in line

    if os.geteuid() != 0:
        (mine.folder / "closed").mkdir()
        (mine.folder / "closed").chmod(0o555)
        return refused("closed")
    with small_disk(mine.folder / "closed", 100) as disk:  # root may write anywhere but here
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        refused("closed")


@pytest.mark.parametrize("words, name", WRITES)
def test_file_in_place_of_a_folder(mine, words, name):
    (mine.folder / "file").write_text("kept")
    line = mine.error(*words, f"file/{name}")
    assert "file" in line and (mine.folder / "file").read_text() == "kept"


@pytest.mark.parametrize("words, name", [w for w in WRITES if w[1] in ("tok", "data", "run")])
def test_file_of_the_name_of_the_folder(mine, words, name):
    (mine.folder / "file").write_text("kept")
    assert "file" in mine.error(*words, "file")
    assert (mine.folder / "file").read_text() == "kept"
