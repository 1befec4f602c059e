"""The notes' assertions on tokenizers (lecture 1), as Python says them: one test an A-line."""
import pytest
import tally

GLOBE = "🌍"
HELLO = "Hello, 🌍! 你好!"
CAT = "the cat in the hat"
WHOLE = r"regex:(?s).+"  # the text as one piece, as minbpe's basic tokenizer has it


def basic(text, merges):
    """BPE without a pattern, ties to the pair met first."""
    return tally.Tokenizer.train([text], vocab_size=256 + merges, pattern=WHOLE, tie="first-seen")


def trained(t, merges):
    """Bytes of what was merged, in order."""
    return t.token_byte_values()[256:256 + merges]


def test_A241_decode_gives_the_string_back():
    for t in [tally.Tokenizer(), tally.Tokenizer.train([HELLO], kind="char"), tally.Tokenizer.train([HELLO], vocab_size=260),
              tally.Tokenizer.train([HELLO], kind="word")]:
        ids = t.encode(HELLO)
        assert t.decode(ids) == HELLO and all(0 <= i < t.vocab_size for i in ids)


def test_A242_code_points():
    assert ord("a") == 97 and ord(GLOBE) == 127757 and chr(127757) == GLOBE
    t = tally.Tokenizer.train([HELLO], kind="char")
    assert [ord(c) for c in t.decode(t.encode("o" + GLOBE))] == [111, 127757]


def test_A243_a_code_point_is_ascii_only_below_128():
    assert "~".isascii() and not "é".isascii() and ord("é") == 233
    assert len(tally.Tokenizer().encode("~")) == 1 and len(tally.Tokenizer().encode("é")) == 2


def test_A244_a_vocabulary_of_code_points_is_sparse():
    t = tally.Tokenizer.train([HELLO], kind="char")
    assert t.vocab_size == len(set(HELLO)) == 10 and t.vocab_size / (max(map(ord, HELLO)) + 1) < 1e-4


def test_A245_bytes_of_a_letter():
    assert tally.Tokenizer().encode("a") == list(bytes("a", "utf-8")) == [97]


def test_A246_the_globe_is_four_bytes():
    assert tally.Tokenizer().encode(GLOBE) == [240, 159, 140, 141]
    assert tally.Tokenizer().decode_bytes([240, 159, 140, 141]) == b"\xf0\x9f\x8c\x8d"


def test_A247_bytes_compress_by_one():
    ids = tally.Tokenizer().encode(HELLO)
    assert len(HELLO.encode()) / len(ids) == 1 and all(0 <= i <= 255 for i in ids)


def test_A248_there_are_256_bytes():
    assert tally.Tokenizer().vocab_size == 256 and tally.Tokenizer().token_bytes(255) == b"\xff"


SAY = "I'll say supercalifragilisticexpialidocious!"


def test_A249_words():
    t = tally.Tokenizer.train([SAY], kind="word")
    assert [t.decode([i]) for i in t.encode(SAY)] == ["I", "'", "ll", " ", "say", " ", "supercalifragilisticexpialidocious", "!"]


def test_A250_words_lose_nothing():
    t = tally.Tokenizer.train([SAY], kind="word")
    assert t.decode(t.encode(SAY)) == SAY and len(t.encode(SAY)) == 8


def test_A251_unseen_words_become_unknown():
    t = tally.Tokenizer.train(["the cat sat"], kind="word")
    unknown = t.special_tokens["<|unk|>"]
    assert t.encode("the dog sat")[2] == unknown and t.decode(t.encode("the dog sat")) == "the <|unk|> sat"
    assert tally.Tokenizer.train(["the cat sat on the mat"], kind="word").vocab_size > t.vocab_size


def test_A252_a_merge_is_one_more_entry():
    t = basic(CAT, 3)
    assert t.vocab_size == 259 and trained(t, 3) == [b"th", b"th" + b"e", b"the" + b" "]


def test_A253_ties_go_to_the_pair_met_first():
    assert trained(basic("zyab", 1), 1) == [b"zy"] and trained(basic("abzy", 1), 1) == [b"ab"]
    assert trained(basic("zyabab", 1), 1) == [b"ab"]


def test_A254_the_cat_in_the_hat():
    t = basic(CAT, 3)
    assert t.decode_tokens_bytes(t.encode(CAT)) == [b"the ", *(bytes([b]) for b in b"cat in "), b"the ", b"h", b"a", b"t"]
    assert len(CAT.encode()) / len(t.encode(CAT)) == 1.5


def test_A255_aaabdaaabac():
    t = basic("aaabdaaabac", 3)
    assert trained(t, 3) == [b"aa", b"aaa", b"aaab"]
    assert t.decode_tokens_bytes(t.encode("aaabdaaabac")) == [b"aaab", b"d", b"aaab", b"a", b"c"]


def test_A256_merges_replace_from_the_left():
    assert basic("aaaaa", 1).decode_tokens_bytes(basic("aaaaa", 1).encode("aaaaa")) == [b"aa", b"aa", b"a"]
    assert trained(basic("aaaaa", 2), 2) == [b"aa", b"aaaa"]


def test_A257_frequent_sequences_are_one_token():
    t = tally.Tokenizer.train([" the" * 100 + " zyxw"], vocab_size=259)
    assert len(t.encode(" the")) == 1 and len(t.encode(" zyxw")) == 5


@pytest.mark.parametrize("tie, merges", [("first-seen", [b"aa", b"aaa", b"aaab"]), ("greatest-bytes", [b"aa", b"aaa", b"aaab"]),
                                         ("smallest-ids", [b"aa", b"ab", b"aaab"])])
def test_O21_ties(tie, merges):
    t = tally.Tokenizer.train(["aaabdaaabac"], vocab_size=259, pattern=WHOLE, tie=tie)
    assert trained(t, 3) == merges
    assert t.decode_tokens_bytes(t.encode("aaabdaaabac")) == [b"aaab", b"d", b"aaab", b"a", b"c"]


def test_O21_offsets():
    t = tally.Tokenizer()
    assert t.char_offsets(t.encode("i ⭢ j")) == [(0, 1), (1, 2), (2, 3), (2, 3), (2, 3), (3, 4), (4, 5)]
    assert t.decode_with_offsets(t.encode("i ⭢ j")) == ("i ⭢ j", [0, 1, 2, 2, 2, 3, 4])
