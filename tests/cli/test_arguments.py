"""Flags, --config and presets: names, precedence, help and errors."""
import json
import subprocess

import pytest

from conftest import PROGRAM

VERBS = ["tokenizer train", "tokenizer encode", "tokenizer decode", "data build", "train", "generate", "inspect model",
         "inspect cost", "inspect memory", "inspect checkpoint", "inspect kernels", "inspect device"]


def model_of(tally, *words):
    return json.loads(tally.run("inspect", "model", "--json", *words))["model"]


def test_program_help_and_version(tally):
    text = tally.run("--help")
    assert tally.run() == text
    for verb in VERBS:
        assert f"\n  {verb} " in text
    assert tally.run("--version").startswith("tally 0.")
    assert "tokenizer decode" in tally.run("tokenizer", "--help")


@pytest.mark.parametrize("verb", VERBS)
def test_verb_help_lists_keys_with_defaults(tally, verb):
    text = tally.run(*verb.split(), "--help")
    assert text.startswith(f"tally {verb}: ")
    keys = [line for line in text.splitlines() if line.startswith("  --")]
    assert keys and all("default " in line for line in keys)


def test_help_says_range_and_choices(tally):
    text = tally.run("train", "--help")
    assert "(0 to 1000; default 0.001)" in text
    assert "(cosine, wsd, constant; default \"cosine\")" in text


@pytest.mark.parametrize("words", [["--model.n_layers", "3"], ["--model.n-layers=3"], ["--n_layers", "3"],
                                   ["--n-layers", "3"], ["--n-layers", "7", "--n-layers", "3"]])
def test_names_of_a_key(tally, words):
    assert model_of(tally, "--preset", "tiny", *words)["n_layers"] == 3


def test_booleans_need_no_value(tally):
    assert model_of(tally, "--preset", "tiny", "--tied", "--n_layers", "1")["tied"] is True
    assert model_of(tally, "--preset", "gpt2", "--tied", "false")["tied"] is False
    assert model_of(tally, "--preset", "gpt2", "--tied=false")["tied"] is False


def test_precedence_default_preset_config_flag(tally):
    config = tally.folder / "c.json"
    config.write_text(json.dumps({"model": {"n_layers": 5, "d_model": 96}}))
    assert model_of(tally, "--preset", "tiny")["d_model"] == 64
    from_config = model_of(tally, "--preset", "tiny", "--config", "c.json")
    assert (from_config["n_layers"], from_config["d_model"], from_config["context"]) == (5, 96, 64)
    both = model_of(tally, "--n_layers", 6, "--config", "c.json", "--preset", "tiny")
    assert (both["n_layers"], both["d_model"]) == (6, 96)


def test_preset_in_config(tally):
    (tally.folder / "c.json").write_text('{"preset_name": "gpt2"}')
    assert "preset_name" in tally.error("inspect", "model", "--config", "c.json")
    (tally.folder / "c.json").write_text('{"preset": "gpt2"}')
    assert model_of(tally, "--config", "c.json")["vocab_size"] == 50257


def test_lists_take_words_and_repeat(tally):
    (tally.folder / "a.txt").write_text("abc")
    (tally.folder / "b,c.txt").write_text("xyz")
    base = ["tokenizer", "train", "--kind", "char", "--dry-run", "--out", "t"]
    first = tally.run(*base, "--input", "a.txt", "b,c.txt")
    assert first == tally.run(*base, "--input", "a.txt", "--input", "b,c.txt") == tally.run(*base, "a.txt", "b,c.txt")
    assert "would read b,c.txt (3 bytes)" in first
    assert "with 2 special tokens" in tally.run(*base, "a.txt", "--special", "[PAD]", "{}")


@pytest.mark.parametrize("words, wanted", [
    (["train", "--lrr", "1"], ["unknown key lrr", "did you mean lr?"]),
    (["train", "--optim.beta3", "1"], ["unknown key optim.beta3", "did you mean optim.beta1?"]),
    (["train", "--kind", "wsd"], ["kind", "is ambiguous: optim.kind, schedule.kind"]),
    (["train", "--preset", "tinny"], ["preset", "did you mean tiny?"]),
    (["train", "--lr"], ["--lr needs a value"]),
    (["train", "--lr", "--steps", "3"], ["--lr needs a value"]),
    (["train", "--lr", "fast"], ["--lr", "must be a number"]),
    (["train", "--lr", "nan"], ["--lr", "finite"]),
    (["train", "--steps", "1.5"], ["--steps", "a whole number"]),
    (["train", "--steps", "-1"], ["--steps", "from 0 to"]),
    (["train", "--batch", "99999999999999999999"], ["--batch"]),
    (["train", "--beta1=2"], ["--beta1", "from 0 to 0.9999999"]),
    (["train", "--bias", "--tied=maybe"], ["--tied", "true or false"]),
    (["train", "stray"], ["'stray' belongs to no flag"]),
    (["train", "-x"], ["unknown flag -x"]),
    (["trian"], ["unknown verb 'trian'", "did you mean train?"]),
    (["tokenizer"], ["tokenizer train"]),
    (["tokenizer", "encod"], ["did you mean tokenizer encode?"]),
    (["--config", "x"], ["unknown verb '--config'"]),
    (["inspect", "model"], ["no model", "--preset"]),
    (["inspect", "model", "--preset", "tiny", "--model", "x"], ["not both"]),
    (["train"], ["no --preset", "gpt2-xl"]),
    (["train", "--preset", "tiny"], ["no --data"]),
    (["generate"], ["no --model"]),
    (["tokenizer", "train", "--kind", "bep"], ["did you mean bpe?"]),
])
def test_wrong_arguments(tally, words, wanted):
    line = tally.error(*words)
    for part in wanted:
        assert part in line


@pytest.mark.parametrize("text, wanted", [
    ("", "c.json"), ("[1]", "c.json: the configuration must be an object"), ("{", "c.json"),
    ('{"model": {"d_modle": 1}}', "unknown key model.d_modle in c.json; did you mean model.d_model?"),
    ('{"lr": 1}', "unknown key lr in c.json; did you mean optim.lr?"),
    ('{"model": 3}', "c.json: model must be an object"), ('{"model": {"d_model": "big"}}', "model.d_model must be"),
    ('{"model": {"d_model": 0}}', "c.json: model.d_model is 0"), ('{"train": {"steps": 1, "steps": 2}}', "steps"),
    ("{" * 1000, "c.json"), ("\x00\xff", "c.json"),
])
def test_wrong_config_file(tally, text, wanted):
    (tally.folder / "c.json").write_text(text)
    assert wanted in tally.error("train", "--preset", "tiny", "--config", "c.json")


def test_missing_config_file(tally):
    assert "no.json: no such file" in tally.error("train", "--config", "no.json")


def test_config_of_a_run_is_a_config(tally, prepared):
    assert model_of(tally, "--config", prepared / "run/config.json")["vocab_size"] == 400


def test_closed_pipe_is_quiet(tally):
    done = subprocess.run(f"'{PROGRAM}' inspect model --preset gpt2-xl --json | head -n 1", shell=True,
                          capture_output=True, env=tally.environment)
    assert done.stdout == b"{\n" and done.stderr == b""


def test_full_standard_output(tally):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and done.stderr == b"tally: error: cannot write standard output\n"


@pytest.mark.parametrize("to", ["2>/dev/full", "2>&-", "<&- >&- 2>&-"])
def test_unwritable_standard_error(tally, prepared, to):
    def run(words):
        return subprocess.run(f"'{PROGRAM}' {words} {to}", shell=True, cwd=tally.folder, env=tally.environment,
                              stdout=subprocess.DEVNULL).returncode

    assert run("train --lrr 1") == 2
    # Exit 1 only where the table for standard output could not be written; the run is whole all the same.
    trained = run(f"train --preset tiny --data '{prepared}/data' --out run --steps 3 --sample-tokens 0")
    assert trained == (1 if ">&- " in to else 0)
    assert (tally.folder / "run/latest").read_text().strip() == "step_00000003"
    assert all(json.loads(line) for line in (tally.folder / "run/metrics.jsonl").read_text().splitlines())
