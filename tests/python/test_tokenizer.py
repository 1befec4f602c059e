"""Tokenizers under the names people know: special tokens as tiktoken has them, arrays, offsets, streams, training."""
import threading

import numpy as np
import pytest
import tally

END = "<|endoftext|>"
MIXED = "The quick brown fox; naïve café, Ελληνικά, 東京タワー, 👩‍💻 and 12345!\n\n  end  \n" * 7


@pytest.fixture(scope="module")
def t():
    return tally.Tokenizer.train([MIXED * 3], vocab_size=400, special_tokens=[END, "<|a|>"])


def test_arrays_are_the_lists(t):
    ids = t.encode(MIXED)
    array = t.encode_to_numpy(MIXED)
    assert array.dtype == np.int32 and array.tolist() == ids and t.decode(array) == MIXED
    assert t.encode_to_numpy("").shape == (0,) and t.decode(np.zeros(0, np.int64)) == ""
    array[0] = 7  # it owns its memory
    assert t.encode(MIXED) == ids
    flat, starts = t.encode_batch_to_numpy(["a", "", MIXED])
    assert flat.dtype == np.int32 and starts.dtype == np.int64 and starts.tolist() == [0, 1, 1, 1 + len(ids)]
    assert [flat[a:b].tolist() for a, b in zip(starts, starts[1:])] == t.encode_batch(["a", "", MIXED])


@pytest.mark.parametrize("make", [list, tuple, np.array, lambda x: np.array(x, np.uint16), lambda x: np.array(x, np.int64),
                                  lambda x: np.array(x, np.uint32), lambda x: np.repeat(np.array(x, np.int32), 2)[::2],
                                  lambda x: np.array(x, np.int32)[::-1][::-1], tally.tensor, lambda x: list(map(np.int64, x)),
                                  lambda x: (i for i in x)])
def test_decode_takes(t, make):
    ids = t.encode(MIXED)
    assert t.decode(make(ids)) == MIXED and t.decode_bytes(make(ids)) == MIXED.encode()


@pytest.mark.parametrize("ids, error", [("12", TypeError), (b"12", TypeError), ([1.5], TypeError), (["a"], TypeError),
                                        (np.array([1.0]), TypeError), (3, TypeError), (None, TypeError)])
def test_decode_refuses(t, ids, error):
    with pytest.raises(error):
        t.decode(ids)


@pytest.mark.parametrize("ids", [[-1], [40000], [2**31], [2**40], np.array([2**31 + 1], np.uint32), np.array([-1])])
def test_ids_outside_the_vocabulary(t, ids):
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        t.decode(ids)


@pytest.mark.parametrize("texts", ["ab", b"ab", 5])
def test_batches_are_lists_of_texts(t, texts):
    with pytest.raises(TypeError, match="takes a list or another iterable of texts"):
        t.encode_batch(texts)
    with pytest.raises(TypeError, match="takes a list or another iterable of texts"):
        t.encode_batch_to_numpy(texts)


def test_batches_from_iterators(t):
    assert t.encode_batch(text for text in ["ab", b"b"]) == t.encode_batch(("ab", "b")) == [t.encode("ab"), t.encode("b")]


def test_bytes_of_ids_far_outside(t):
    for id in (-1, t.vocab_size, 2**31, 2**40):
        with pytest.raises(RuntimeError, match=f"token id {id} is outside the vocabulary"):
            t.token_bytes(id)


def test_special_tokens_as_tiktoken_has_them(t):
    text, end, a = "x" + END + "<|a|>", t.special_tokens[END], t.special_tokens["<|a|>"]
    assert t.encode(text)[1:] == [end, a] == t.encode(text, allowed_special="all")[1:]
    assert end not in t.encode_ordinary(text) and t.encode_ordinary(text) == t.encode(text, allow_special=False)
    assert t.encode_ordinary(text) == t.encode(text, disallowed_special=())
    only = t.encode(text, allowed_special={END}, disallowed_special=())
    assert only[1] == end and a not in only
    for keywords in [{"allowed_special": {END}}, {"allowed_special": set()}, {"disallowed_special": "all"},
                     {"disallowed_special": {"<|a|>"}}, {"allowed_special": {END}, "disallowed_special": {"<|a|>"}}]:
        with pytest.raises(ValueError, match="allow"):
            t.encode(text, **keywords)
        assert t.encode("plain", **keywords) == t.encode("plain")
    with pytest.raises(ValueError):
        t.encode(text, allowed_special="some")
    assert t.special_tokens_set == {END, "<|a|>"} and t.eot_token == end and tally.Tokenizer().eot_token is None
    assert t.n_vocab == t.max_token_value + 1 == len(t) == t.vocab_size


def test_every_form_of_encode_takes_them(t):
    text, keywords = END + "x", {"allowed_special": "all"}
    ids = t.encode(text)
    assert t.encode_to_numpy(text, **keywords).tolist() == t.encode_batch([text], **keywords)[0] == ids
    assert t.count(text, **keywords) == len(ids) and t.encode_with_offsets(text, **keywords)[0] == ids
    assert list(t.encode_stream([text], **keywords)) == ids and t.encode_batch_to_numpy([text])[0].tolist() == ids
    assert t.encode_ordinary_batch([text, "a"]) == [t.encode_ordinary(text), t.encode("a")]
    for encode in [t.encode_to_numpy, t.count, t.encode_with_offsets, lambda x, **k: t.encode_batch([x], **k)]:
        with pytest.raises(ValueError):
            encode(text, disallowed_special="all")


def test_offsets(t):
    ids, spans = t.encode_with_offsets(MIXED)
    assert ids == t.encode(MIXED) and len(spans) == len(ids) and spans[0][0] == 0 and spans[-1][1] == len(MIXED)
    assert spans == t.char_offsets(ids)
    text, starts = t.decode_with_offsets(ids)
    assert text == MIXED and starts == [first for first, _ in spans]
    assert b"".join(t.decode_tokens_bytes(ids)) == MIXED.encode()
    assert t.token_bytes(ids[0]) == t.decode_single_token_bytes(ids[0]) == t.token_byte_values()[ids[0]]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10**6])
def test_streams(t, size):
    data = (MIXED + END).encode()
    chunks = [data[i:i + size] for i in range(0, len(data), size)]
    ids = t.encode(MIXED + END)
    assert list(t.encode_stream(chunks)) == ids == list(t.encode_iterable(iter(chunks)))
    encoder, decoder, found = tally.StreamEncoder(t), tally.StreamDecoder(t), []
    for chunk in chunks:
        found += encoder.push(chunk)
    assert found + encoder.finish() == ids
    assert "".join(map(decoder.push, ids)) + decoder.finish() == MIXED + END


def test_a_stream_is_lazy_and_gives_errors_on(t):
    def chunks():
        yield "some words here " * 4
        raise KeyError("gone")
    stream = t.encode_stream(chunks())
    assert next(stream) == t.encode("some words")[0]
    with pytest.raises(KeyError):
        list(stream)
    with pytest.raises(TypeError):
        list(t.encode_stream([1]))
    with pytest.raises(TypeError):
        t.encode_stream(1)
    with open(__file__) as file:
        ids = list(t.encode_iterable(file))
    with open(__file__) as file:
        assert t.decode(ids) == file.read()


def test_text_that_is_no_utf8(t):
    assert t.decode_bytes(t.encode(b"\xff\xfe ok \xe2\x82")) == b"\xff\xfe ok \xe2\x82"
    assert t.decode(t.encode(b"a\xff")) == "a\ufffd" and t.decode(t.encode(b"a\xff"), errors="ignore") == "a"
    with pytest.raises(UnicodeDecodeError):
        t.decode(t.encode(b"a\xff"), errors="strict")
    assert t.encode("a\ud800b") == t.encode("a\ufffdb")  # as tiktoken
    assert t.encode("\ud83d\ude42") == t.encode("🙂")
    for wrong in [1, None, ["a"], bytearray(b"a")]:
        with pytest.raises(TypeError):
            t.encode(wrong)
    decoder = tally.StreamDecoder(tally.Tokenizer())
    assert [decoder.push(b) for b in "é".encode()] == ["", "é"] and decoder.push(0xE2) == "" and decoder.finish() == "\ufffd"


def test_dropout(t):
    assert t.encode_with_dropout(MIXED, 0.0) == t.encode(MIXED)
    some = t.encode_with_dropout(MIXED, 0.5, seed=3)
    assert t.decode(some) == MIXED and len(some) > len(t.encode(MIXED)) and some == t.encode_with_dropout(MIXED, 0.5, seed=3)
    assert len(t.encode_with_dropout("abc", 1.0)) == 3
    with pytest.raises(ValueError):
        t.encode_with_dropout("a", 1.5)


def test_training_arguments(tmp_path):
    (tmp_path / "text.txt").write_text(MIXED)
    seen = []
    t = tally.Tokenizer.train_files([tmp_path / "text.txt"], vocab_size=300, pattern="cl100k", tie="smallest-ids",
                                    min_frequency=2, progress=lambda *what: seen.append(what))
    assert t.pattern == "cl100k" and t.vocab_size <= 300 and {phase for phase, _, _ in seen} >= {"reading"}
    t.save(tmp_path / "tok")
    assert tally.Tokenizer.from_file(tmp_path / "tok").hash == t.hash
    t.save_as(tmp_path / "tokenizer.json")
    assert tally.Tokenizer.from_file(tmp_path / "tokenizer.json").encode(MIXED) == t.encode(MIXED)
    words = tally.Tokenizer.train(["a a a b b c"], kind="word", min_count=2)
    assert words.decode(words.encode("a b c")) == "a b <|unk|>"
    for wrong in [{"tie": "none"}, {"pattern": "none"}, {"alphabet": "some"}, {"kind": "none"}]:
        with pytest.raises((ValueError, RuntimeError)):
            tally.Tokenizer.train(["text"], **{"vocab_size": 300, **wrong})

    def stop(*_):
        raise KeyError("stop")
    with pytest.raises(KeyError):
        tally.Tokenizer.train_files([tmp_path / "text.txt"], vocab_size=300, progress=stop)


def test_threads(t):
    wanted, found = t.encode(MIXED), []
    threads = [threading.Thread(target=lambda: found.extend(t.encode(MIXED) == wanted for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200 and all(found)


def test_files_of_others(t, tmp_path):
    t = tally.Tokenizer.train([MIXED], vocab_size=330)
    t.save_as(tmp_path / "ranks.tiktoken")
    again = tally.Tokenizer.from_file(tmp_path / "ranks.tiktoken", pattern="gpt2", special_tokens=[END])
    assert again.decode_tokens_bytes(again.encode(MIXED)) == t.decode_tokens_bytes(t.encode(MIXED))
    assert END in again.special_tokens
    with pytest.raises(RuntimeError):
        tally.Tokenizer.from_file(tmp_path / "ranks.tiktoken")
    with pytest.raises(RuntimeError):
        tally.Tokenizer.from_file(tmp_path / "absent")
