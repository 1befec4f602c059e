"""Tokenizers, data, training, plans and text, as the program has them."""
import json

import pytest
import tally

TEXT = "In the beginning God created the heaven and the earth. And the earth was without form, and void. " * 60
END = "<|endoftext|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text(TEXT)
    tokenizer = tally.Tokenizer.train_files([folder / "text.txt"], vocab_size=300, special_tokens=[END])
    tokenizer.save(folder / "tok")
    info = tally.build_data(tokenizer, [str(folder / "text.txt")], folder / "data", val_fraction=0.2)
    assert info["vocab_size"] == 300 and info["train"]["tokens"] > 0 and info["val"]["tokens"] > 0
    config = {"data": {"dir": str(folder / "data")},
              "train": {"steps": 6, "batch": 2, "eval_every": 3, "checkpoint_every": 3, "sample_tokens": 0}}
    result = tally.train(config, folder / "model", preset="tiny")
    assert result["complete"] and result["step"] == 6 and result["best_step"] in (3, 6)
    return folder


def test_tokenizer(folder):
    t = tally.Tokenizer.from_file(folder / "tok")
    ids = t.encode("the earth" + END)
    assert t.decode(ids) == "the earth" + END and t.special_tokens == {END: ids[-1]} and len(t) == t.vocab_size == 300
    assert t.decode(tally.tensor(ids)) == "the earth" + END
    assert t.encode("the earth" + END, allow_special=False)[-1] != ids[-1]
    assert t.decode_batch(t.encode_batch(["a", "bc"])) == ["a", "bc"]
    assert t.decode_bytes(t.encode("é".encode())) == "é".encode() and t.encode("") == []
    again = tally.Tokenizer.train([TEXT], vocab_size=300, special_tokens=[END])
    assert again.hash == t.hash and again.token_bytes(ids[-1]) == END.encode()


def test_byte_and_char_tokenizers():
    assert tally.Tokenizer().encode("aé") == [97, 195, 169] and tally.Tokenizer().kind == "byte"
    t = tally.Tokenizer.train(["cab"], kind="char")
    assert t.encode("abc") == [0, 1, 2]
    with pytest.raises(RuntimeError):
        t.encode("x")
    with pytest.raises(ValueError):
        tally.Tokenizer.train(["text"])


def test_batches_of_a_data_folder(folder):
    batches = tally.Batches(str(folder / "data"), 2, 8, order="shuffle")
    x, y = batches[0]
    assert x.shape == y.shape == (2, 8) and tally.equal(x[:, 1:], y[:, :-1])
    assert tally.equal(batches[5][0], tally.Batches(str(folder / "data"), 2, 8, order="shuffle")[5][0])
    with pytest.raises(IndexError):
        batches[-1]
    with pytest.raises(ValueError):
        tally.Batches(str(folder / "data"), 2, 8, order="none")


def test_generate(folder):
    lm = tally.LanguageModel.load(folder / "model")
    text = lm.generate("In the", max_tokens=5, temperature=0)
    assert text == lm.generate("In the", max_tokens=5, temperature=0) and isinstance(text, str)
    assert lm.tokenizer.vocab_size == 300 and lm.config["vocab_size"] == 300
    assert lm.generate("In", max_tokens=3, seed=1) == lm.generate("In", max_tokens=3, seed=1)
    with pytest.raises(RuntimeError):
        lm.generate("In", top_p=7.0)


def test_a_run_that_is_there_is_not_overwritten(folder):
    with pytest.raises(RuntimeError):
        tally.train({"data": {"dir": str(folder / "data")}}, folder / "model", preset="tiny")
    metrics = [json.loads(line) for line in (folder / "model" / "metrics.jsonl").read_text().splitlines()]
    assert metrics


def test_plan():
    p = tally.plan({"train": {"batch": 2}}, preset="tiny")
    assert p["parameters"] == tally.LanguageModel.make(preset="tiny").parameter_count()
    assert p["peak"]["bytes"] == sum(p["peak"]["by_category"].values()) > 0
    big = tally.plan({}, preset="gpt2")
    assert big["parameters"] == 124439808 and "matmul" in big["text"].lower() or big["matmul_flops"] > 0


def test_a_model_of_the_library_trains():
    lm = tally.LanguageModel.make({"vocab_size": 64, "context": 16}, preset="tiny", seed=3)
    named = lm.named_parameters()
    optimizer = tally.optim.AdamW([p for _, p in named], lr=1e-2)
    ids = tally.tensor([[1, 2, 3, 4, 5, 6]], dtype=tally.int32)
    targets = tally.tensor([[2, 3, 4, 5, 6, 7]], dtype=tally.int32)
    losses = []
    for _ in range(20):
        loss = lm.loss(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0] and lm.logits(ids).shape == (1, 6, 64)
