"""The vocabularies of bench/tokenizers.py, made from published files that are on this machine: gpt2_vocab.json with
gpt2_merges.txt, cl100k_base.tiktoken, o200k_base.tiktoken (plain or .gz). Nothing is downloaded.

A vocabulary is a name and a pattern over the ranks of one of these files: gpt2, cl100k, o200k as tiktoken defines them,
llama3 and qwen2 the patterns of those models over cl100k's ranks. For tiktoken it is an Encoding; for Hugging Face's
tokenizers a tokenizer.json as its converters write it: all pairs of entries that join to an entry are merges, and an entry
wins before any merge (ignore_merges).
"""
import base64
import gzip
import json
import pathlib
import sys

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PATTERNS = {
    "llama3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
PATTERNS["cl100k"] = PATTERNS["llama3"]  # the same splits without possessive quantifiers, which Oniguruma reads otherwise
RANKS = {"gpt2": "gpt2", "cl100k": "cl100k", "o200k": "o200k", "llama3": "cl100k", "qwen2": "cl100k"}
END = "<|endoftext|>"
END_ID = {"gpt2": 50256, "cl100k": 100257, "o200k": 199999}


def printable_bytes():
    """Byte -> the character that stands for it in vocab.json."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {b: chr(b) for b in kept}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return table


def find(folder, name):
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    raise SystemExit(f"{folder} has no {name} (nor {name}.gz)")


def read(path):
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def ranks(folder, name):
    """Bytes -> id, special tokens left out."""
    if RANKS[name] == "gpt2":
        byte_of = {c: b for b, c in printable_bytes().items()}
        vocab = json.loads(read(find(folder, "gpt2_vocab.json")))
        return {bytes(byte_of[c] for c in token): i for token, i in vocab.items() if token != END}
    lines = read(find(folder, f"{RANKS[name]}_base.tiktoken")).splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}


def tiktoken_encoding(folder, name):
    """What tiktoken has under this name, its file taken from the folder; for llama3 and qwen2 their patterns."""
    import tiktoken
    import tiktoken_ext.openai_public as public
    found = ranks(folder, name)
    public.load_tiktoken_bpe = public.data_gym_to_mergeable_bpe_ranks = lambda *args, **named: found
    definition = {"gpt2": public.gpt2, "o200k": public.o200k_base}.get(name, public.cl100k_base)()
    if name in ("llama3", "qwen2"):
        definition = {**definition, "name": name, "pat_str": PATTERNS[name]}
    return tiktoken.Encoding(**definition)


def merges_of(found):
    """All pairs of entries that join to an entry, in the order of the entries."""
    pairs = []
    for token in sorted(found, key=found.get):
        here = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in found and token[i:] in found]
        pairs += sorted(here, key=lambda p: (found[p[0]], found[p[1]]))
    return pairs


def tokenizer_json(folder, name):
    """The text of a tokenizer.json for this vocabulary."""
    table, found = printable_bytes(), ranks(folder, name)
    shown = {token: "".join(table[b] for b in token) for token in found}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": name == "gpt2"}
    if name == "gpt2":
        lines = read(find(folder, "gpt2_merges.txt")).decode().splitlines()
        merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
        splitter = byte_level
    else:
        merges = [[shown[a], shown[b]] for a, b in merges_of(found)]
        pattern = PATTERNS.get(name) or tiktoken_encoding(folder, name)._pat_str
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        splitter = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    end = END_ID[RANKS[name]]
    added = {"id": end, "content": END, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}
    vocab = {shown[token]: i for token, i in sorted(found.items(), key=lambda item: item[1])}
    if name == "gpt2":
        vocab[END] = end
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added], "normalizer": None,
        "pre_tokenizer": splitter, "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": name != "gpt2",
                  "vocab": vocab, "merges": merges}}, ensure_ascii=False)


def prepare(folder, out):
    """Writes to `out` what the programs load: NAME.json for tokenizers (and for Tally where it is llama3 or qwen2), and for
    Tally gpt2/, cl100k_base.tiktoken, o200k_base.tiktoken. Returns {name: path for Tally}."""
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    for name in RANKS:
        path = out / f"{name}.json"
        if not path.exists():
            path.with_suffix(".part").write_text(tokenizer_json(folder, name))
            path.with_suffix(".part").rename(path)
    gpt2 = out / "gpt2"
    gpt2.mkdir(exist_ok=True)
    for kind in ("vocab.json", "merges.txt"):
        (gpt2 / kind).write_bytes(read(find(folder, f"gpt2_{kind}")))
    ours = {"gpt2": gpt2, "llama3": out / "llama3.json", "qwen2": out / "qwen2.json"}
    for name in ("cl100k", "o200k"):
        ours[name] = out / f"{name}_base.tiktoken"
        ours[name].write_bytes(read(find(folder, ours[name].name)))
    return ours


if __name__ == "__main__":  # FOLDER OUT; run by the peers' Python
    sys.path.append(sys.path.pop(0))  # this folder, which has a file tokenizers.py, behind the packages
    print(json.dumps({name: str(path) for name, path in prepare(*sys.argv[1:]).items()}))
