"""Training with a peer: tokenizer_train.py hf|rustbpe TEXT ENDS DOCUMENTS VOCABULARY. Prints {"seconds", "merges"}; a merge
is its two parts in the characters of merges.txt. The documents are in memory before the clock starts."""
import json
import pathlib
import struct
import sys
import time

sys.path.append(sys.path.pop(0))  # this folder, which has a file tokenizers.py, behind the packages
import tokenizer_vocabularies  # noqa: E402

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def documents(text, ends, count):
    data, table = pathlib.Path(text).read_bytes(), pathlib.Path(ends).read_bytes()
    at = [0, *struct.unpack_from(f"<{count}Q", table)]
    return [data[a:b].decode() for a, b in zip(at, at[1:])]


def hf(texts, vocabulary):
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    start = time.perf_counter()
    tokenizer.train_from_iterator(iter(texts), trainer, length=len(texts))
    seconds = time.perf_counter() - start
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return seconds, [m if isinstance(m, str) else " ".join(m) for m in merges]


def rustbpe(texts, vocabulary):
    import rustbpe as program
    tokenizer = program.Tokenizer()
    start = time.perf_counter()
    tokenizer.train_from_iterator(iter(texts), vocabulary, pattern=GPT2)
    seconds = time.perf_counter() - start
    found = {bytes(token): rank for token, rank in tokenizer.get_mergeable_ranks()}
    table = tokenizer_vocabularies.printable_bytes()
    shown = lambda token: "".join(table[b] for b in token)  # noqa: E731
    merges = []
    for token in sorted((t for t in found if len(t) > 1), key=found.get):
        left, right = parts(token, found)
        merges.append(f"{shown(left)} {shown(right)}")
    return seconds, merges


def parts(token, found):
    """The two entries that the merge of this token joins: what lower ranks make of its bytes."""
    pieces = [bytes([b]) for b in token]
    while len(pieces) > 2:
        ranked = [(found.get(a + b, 1 << 30), i) for i, (a, b) in enumerate(zip(pieces, pieces[1:]))]
        rank, i = min(r for r in ranked if r[0] < found[token])
        pieces[i:i + 2] = [pieces[i] + pieces[i + 1]]
    return pieces


def main():
    program, text, ends, count, vocabulary = sys.argv[1:]
    seconds, merges = {"hf": hf, "rustbpe": rustbpe}[program](documents(text, ends, int(count)), int(vocabulary))
    print(json.dumps({"seconds": seconds, "merges": merges}))


if __name__ == "__main__":
    main()
