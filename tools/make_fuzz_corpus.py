#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: small valid files, and the torn and hostile ones of the unit tests.

usage: make_fuzz_corpus.py [FOLDER]     FOLDER is tests/fuzz/corpus; files that are there already and have other names
(findings, and what tools/fuzz.sh --keep added) stay.
"""
import base64
import json
import pathlib
import struct
import sys
import zlib

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "tests/fuzz/corpus")


def write(target, seeds):
    folder = FOLDER / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in seeds.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def safetensors():
    def file(header, data=b"", length=None):
        text = header if isinstance(header, (str, bytes)) else json.dumps(header, separators=(",", ":"))
        text = text if isinstance(text, bytes) else text.encode()
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    bits = {"F64": 64, "F32": 32, "BF16": 16, "F16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32,
            "U16": 16, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F4": 4, "C64": 64}
    at, every = 0, {"__metadata__": {"format": "pt", "step": "20", "a \"b\"": "\u00e9\n"}}
    for dtype, size in bits.items():
        every["t." + dtype] = entry(dtype, [2, 4], at, at + size)
        at += size
    whole = file({"__metadata__": {"k": "v"}, "a": entry("F32", [2], 0, 8), "b": entry("U8", [1, 3], 8, 11)},
                 b"12345678abc")
    a = entry("F32", [2], 0, 8)
    return {
        "empty": b"", "no_tensors": file({}), "small": whole, "every_dtype": file(every, bytes(range(256))[:at] * 1),
        "every_dtype_whole": file(every, bytes(i % 251 for i in range(at))),
        "torn_length": whole[:5], "torn_header": whole[:40], "torn_data": whole[:-1], "longer": whole + b"x",
        "scalar_and_empty": file({"__metadata__": {}, "z": entry("BF16", [0], 0, 0), "s": entry("F32", [], 0, 4)},
                                 b"\0\0\x20\x40"),
        "out_of_order": file({"b": entry("U8", [3], 8, 11), "a": a}, b"12345678abc"),
        "length_all_ones": file("{}", length=2**64 - 1), "length_100_mb": file("{}", length=10**8),
        "hole": file({"a": a, "b": entry("U8", [1], 9, 10)}, b"0123456789"),
        "overlap": file({"a": a, "b": entry("U8", [4], 6, 10)}, b"0123456789"),
        "same_bytes": file({"a": a, "b": a}, b"01234567"),
        "backwards": file({"a": entry("F32", [2], 8, 0)}, b"01234567"),
        "shape_overflow": file({"a": entry("F32", [2**62, 4], 0, 0)}),
        "shape_overflow_zero": file({"a": entry("F32", [2**40, 2**40, 0], 0, 0)}),
        "shape_negative": file({"a": entry("F32", [-1], 0, 0)}), "shape_fraction": file({"a": entry("F32", [1.5], 0, 6)}),
        "shape_many_axes": file({"a": entry("U8", [1] * 7, 0, 1)}, b"x"),
        "offset_huge": file({"a": entry("F32", [2], 2**63 - 9, 2**63 - 1)}), "dtype_unknown": file({"a": entry("X9", [2], 0, 8)}, b"01234567"),
        "odd_bits": file({"a": entry("F4", [3], 0, 2)}, b"xx"), "not_an_object": file("[1]"), "null_entry": file({"a": None}),
        "metadata_number": file({"__metadata__": {"k": 1}}), "metadata_null": file({"__metadata__": None}),
        "key_twice": file('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"xy"),
        "padded": file("{}      "), "padded_with_nul": file(b"{}\0\0\0\0\0\0"), "line_break_in_name": file({"a\nb": entry("U8", [2], 0, 1)}, b"x"),
        "not_utf8": file(b'{"\xff":{}}'), "nested": file("[" * 300),
    }


def shard():
    def file(tokens, ends, code=1, version=1, count=None, documents=None, reserved=b""):
        body = b"".join(struct.pack("<H" if code == 1 else "<I", t) for t in tokens)
        tail = b"".join(struct.pack("<Q", e) for e in ends)
        head = b"TALLYTOK" + struct.pack("<IIQQ", version, code, len(tokens) if count is None else count,
                                         len(ends) if documents is None else documents)
        head += bytes(range(16)) + bytes(16) + reserved  # the target puts the sums in
        return head.ljust(256, b"\0") + body + tail

    whole = file([5, 6, 7, 8, 299], [3, 3, 5])
    return {
        "empty": b"", "no_tokens": file([], []), "u16": whole, "u32": file([1, 70000, 2], [1, 3], code=2),
        "open_document": file([1, 2, 3, 4], [2]), "no_documents": file([9, 8, 7], []), "only_documents": file([], [0, 0]),
        "torn_magic": whole[:7], "torn_header": whole[:255], "torn_tokens": whole[:260], "torn_ends": whole[:-1],
        "longer": whole + b"x", "id_above_int32": file([1, 2**31, 2**32 - 1], [3], code=2),
        "end_behind": file([1, 2, 3], [9, 3]), "ends_fall": file([1, 2, 3], [3, 1]), "end_huge": file([1], [2**64 - 1]),
        "tokens_huge": file([1], [], count=2**64 - 1), "tokens_2_60": file([1], [], count=2**60),
        "documents_huge": file([1], [], documents=2**61), "sizes_wrap": file([1], [], count=2**60, documents=2**60),
        "version_2": file([1], [], version=2), "dtype_3": file([1], [], code=3), "reserved": file([1], [], reserved=b"x"),
        "text": b"plain text, no shard", "zeros": bytes(300),
    }


def npy():
    def file(descr, shape, data=b"", version=1, fortran="False", header=None):
        text = header or "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, shape)
        start = 10 if version == 1 else 12
        text = text.ljust(len(text) + 63 - (start + len(text)) % 64) + "\n"
        return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text.encode() + data

    def archive(members, method=0, flags=0, zip64=False, crc=None, share=False):
        out, directory = b"", b""
        for name, data in members:
            offset, size, sum_ = 0 if share else len(out), len(data), zlib.crc32(data) if crc is None else crc
            extra = struct.pack("<HHQQ", 1, 16, size, size) if zip64 else b""
            stated, raw = 2**32 - 1 if zip64 else size, name.encode()
            if not share or not out:
                out += struct.pack("<IHHHIIIIHH", 0x04034B50, 20, flags, method, 0, sum_, stated, stated, len(raw), len(extra)) + raw + extra + data
            directory += struct.pack("<IHHHHIIIIHHHHHII", 0x02014B50, 20, 20, flags, method, 0, sum_, stated, stated,
                                     len(raw), len(extra), 0, 0, 0, 0, offset) + raw + extra
        end = b""
        if zip64:
            at = len(out) + len(directory)
            end = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, len(members), len(members), len(directory), len(out))
            end += struct.pack("<IIQI", 0x07064B50, 0, at, 1)
        return out + directory + end + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, len(members), len(members), len(directory), len(out), 0)

    kinds = {"f8": 8, "f4": 4, "i8": 8, "i4": 4, "u2": 2, "u8": 8, "u4": 4, "i2": 2, "f2": 2}
    seeds = {"kind_" + k: file("<" + k, "(2,)", bytes(range(2 * n))) for k, n in kinds.items()}
    seeds |= {"kind_" + k: file("|" + k, "(2,)", b"\0\1") for k in ("u1", "i1", "b1")}
    a, b = file("<f4", "(2,)", b"12345678"), file("|u1", "(3,)", b"abc")
    pair = archive([("w.a.npy", a), ("b.npy", b)])
    return seeds | {
        "empty": b"", "scalar": file("<f4", "()", b"1234"), "version_2": file("<i4", "(1, 2)", b"12345678", version=2),
        "version_3": file("<i4", "(2, 1)", b"12345678", version=3), "version_9": b"\x93NUMPY\x09" + bytes(5),
        "none": file("<f4", "(0, 5)"), "long_integer": file("<i4", "(2L,)", b"12345678"), "text": b"not a npy file",
        "fortran_vector": file("<i4", "(1, 2)", b"12345678", fortran="True"),
        "fortran": file("<f4", "(2, 2)", b"x" * 16, fortran="True"), "big_endian": file(">f4", "(2,)", b"12345678"),
        "string_u": file("<U6", "()", struct.pack("<6I", 0x61, 0xE9, 0x20AC, 0x1F600, 0, 0)), "string_s": file("|S4", "()", b"ab\0\0"),
        "string_surrogate": file("<U1", "()", struct.pack("<I", 0xD800)), "string_huge": file("<U2147483647", "()"),
        "torn_header": a[:60], "torn_data": a[:-1], "longer": a + b"x", "complex": file("<c8", "(1,)", b"12345678"),
        "object": file("|O", "(1,)", b"12345678"), "structured": file("", "", header="{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"),
        "shape_negative": file("<f4", "(-1,)", b"1234"), "shape_overflow": file("<f4", "(4611686018427387904, 4)"),
        "shape_overflow_zero": file("<f4", "(4611686018427387904, 4, 0)"), "shape_digits": file("<f4", "(99999999999999999999,)"),
        "shape_many_axes": file("<f4", "(1,1,1,1,1,1,1)", b"1234"), "line_break_in_descr": file("<f\n4", "(1,)", b"1234"),
        "zip": pair, "zip64": archive([("a.npy", a)], zip64=True), "zip_torn": pair[:-1], "zip_no_members": archive([]),
        "zip_compressed": archive([("a.npy", a)], method=8), "zip_encrypted": archive([("a.npy", a)], flags=1),
        "zip_wrong_sum": archive([("a.npy", a)], crc=1), "zip_line_break_in_name": archive([("a\n.npy", b"x")]),
        "zip_other_member": archive([("README", b"text"), ("a.npy", a)]), "zip_comment": pair[:-2] + b"\3\0abc",
        "zip_shared_member": archive([("a%d.npy" % i, a) for i in range(40)], share=True), "zip_string": archive([("meta.npy", file("<U2", "()", b"a\0\0\0b\0\0\0"))]),
    }


def tokenizer():
    def folder(config="", vocab="", merges="", text="the cat ate"):
        parts = [p if isinstance(p, str) else json.dumps(p, ensure_ascii=False, separators=(",", ":"))
                 for p in (config, vocab, merges)]
        return b"\xff".join([p.encode("utf-8", "surrogatepass") for p in parts]) + b"\xff" + (text if isinstance(text, bytes) else text.encode())

    def keys(*names):
        return {name: i for i, name in enumerate(names)}

    printable = [chr(c) for c in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100), *range(0x100, 0x144)]]
    small = keys("a", "b", "ab", "ba")
    handout = folder("", keys("\u0120", "a", "c", "e", "h", "t", "th", "\u0120c", "\u0120a", "the", "\u0120at"),
                     "#version: 0.2\r\nt h\r\n\u0120 c\r\n\u0120 a\r\nth e\r\n\u0120a t\r\n")
    merges = ["\u0120 t", "h e", "\u0120t he", "l o", "lo w", "e r", "n e", "\u00c3 \u00a9", "a a", "aa aa", "aaaa aaaa", "aaaaaaaa aaaaaaaa"]
    whole = keys("<|endoftext|>", *printable, *[m.replace(" ", "") for m in merges])
    bpe = {"kind": "bpe", "pattern": "gpt2", "special_tokens": {"<|endoftext|>": 0}}
    lines = "#version: 0.2\n" + "".join(m + "\n" for m in merges)
    seeds = {
        "empty": b"", "handout": handout, "handout_torn": handout[:60], "whole_bpe": folder(bpe, whole, lines, b"low lower \xc3\xa9 aaaaaaaaaaaaaaa<|endoftext|>the \xf0\x9f"),
        "gpt2_pair": folder("", keys("a", "b", "ab", "<|endoftext|>"), "a b\n", "ab<|endoftext|>ba"),
        "no_merges": folder({"kind": "bpe"}, small, "#version: 0.2\n", "abba"), "ranks_out_of_order": folder("", keys("a", "b", "ab", "aba", "abab"), "ab ab\nab a\na b\n", "ababababa"),
        "two_ways": folder("", keys("a", "b", "aa", "ab", "aab"), "a ab\naa b\na a\na b\n", "aabaab"),
        "byte": folder({"kind": "byte"}), "byte_specials": folder({"kind": "byte", "special_tokens": {"<x>": 256, "<xy>": 257}}, text="<xy><x>\xe9"),
        "char": folder({"kind": "char", "special_tokens": {"<x>": 3}}, keys("a", "\u00e9", " ", "<x>"), "", "a \u00e9<x>"),
        "special_prefixes": folder({"kind": "bpe", "special_tokens": {"<a>": 2, "<a><a>": 3, "<": 4}}, keys("a", ">", "<a>", "<a><a>", "<"), "#version: 0.2\n", "<a><a><a>a"),
        "special_space": folder({"kind": "bpe", "special_tokens": {" ": 4}}, keys("\u0120", "a", "\u0120a", "b", " "), "\u0120 a\n", " a ab"),
        "long_piece": folder(bpe, whole, lines, "*lowaaaaaaaaaaaaaaaaaaaaaaaaa"), "long_piece_out_of_order": folder("", keys("a", "b", "ab", "aba", "abab"), "ab ab\nab a\na b\n", "*abababba"),
        "special_made_by_merges": folder({"kind": "bpe", "special_tokens": {"ab": 2}}, small, "a b\nb a\n", "abba"),
    }
    for i, vocab in enumerate(["{\"a\":0,\"b\":1", "{\"a\":0,\"a\":1}", "[]", "{}", {"a": "0"}, {"a": 0.5}, {"a": 0, "b": 0}, {"a": 0, "b": 3},
                               {"a": -1, "b": 1}, {"a": 0, "b": 99999999999}, keys("a", "x y"), keys("a", ""), keys("a", "\u4f60"), keys("a", "ab")]):
        seeds["hostile_vocab_%02d" % i] = folder("", vocab, "a b\n")
    for i, text in enumerate(["#version: 0.2\na b\nba", "a b\n\nb a\n", "a  b\n", " a\n", "a b c\n", "a b\nb a\na b\n", "a \x01\n", "a c\n", "ab a\n", "\r\n"]):
        seeds["hostile_merges_%02d" % i] = folder("", small, text, "abba")
    configs = ["{\"kind\":\"bpe\"", "[1]", {"model_max_length": 1024}, {"kind": "word\n"}, {"kind": "bpe", "pattern": "cl100k"}]
    configs += [{"kind": kind, "special_tokens": specials} for kind, specials in [
        ("bpe", []), ("bpe", {"<x>": "2"}), ("bpe", {"<x>": -2}), ("bpe", {"<x>": 1}), ("bpe", {"<x>": 3}), ("bpe", {"<x>": 2, "b": 2}),
        ("byte", {"<x>": 255}), ("byte", {"<x>": 258, "<y>": 256}), ("byte", {"<x>": 256, "<y>": 256}), ("byte", {"": 256}), ("byte", {"a": 256}),
        ("char", {}), ("char", {"<x>": 2}), ("bpe", {"<x>": 2}), ("byte", {"<x>": 2147483647})]]
    configs += [{"kind": "bpe", "pattern": "regex:[ab]"}, {"kind": "word", "special_tokens": {"<x>": 2}},
                {"kind": "bpe", "ignore_merges": True, "normalizer": "nfc", "special_tokens": {"<x>": 2}, "not_special": ["<x>"]}]
    for i, config in enumerate(configs):
        seeds["config_%02d" % i] = folder(config, keys("a", "b", "<x>"), "#version: 0.2\n", "a<x>b")
    return seeds


def tiktoken():
    def lines(*tokens, first=256):
        return b"".join(base64.b64encode(t.encode()) + b" %d\n" % (first + i) for i, t in enumerate(tokens))

    every = b"".join(base64.b64encode(bytes([b])) + b" %d\n" % b for b in range(256))
    more = lines("ab", " t", "he", " the", "aa", "aaaa", "low", "lo", "abc", "xyz", "yz", "xy", "\u00e9")
    return {
        "empty": b"", "bytes": b"+", "more": b"+" + more, "more_text": b"+" + more + b"\xffxyzyz the  thelowlo aaaaaaaaaaa\xe9",
        "whole": every + more, "torn": (every + more)[:-7], "torn_line": every[: every.rfind(b"\n", 0, -1) + 1],
        "order": b"+" + lines("bcd", "ab", "cd", "abcd") + b"\xffabcdabcd bcde", "crlf": b"+" + more.replace(b"\n", b"\r\n"),
        "no_pair": b"+" + lines("abcdef", "bc", "abcabc") + b"\xffabcdef abcabc abcdefg", "gap": b"+" + lines("ab", first=300),
        "spaces": b"+" + lines("  ", "    ", "        ", "\n\n") + b"\xff             \n\n\n\n x", "high": b"+YWI= 2147483647\n",
        "rank_twice": b"+YWI= 256\nYmM= 256\n", "token_twice": b"+YWI= 256\nYWI= 257\n", "byte_twice": b"+YQ== 256\n",
        "no_rank": b"+YWI=\n", "bad_base64": b"+YW= 256\n", "loose_bits": b"+YWJ= 256\n", "no_token": b"+ 256\n", "negative": b"+YWI= -1\n",
        "huge": b"+YWI= 99999999999999999999\n", "long_token": b"+" + lines("ab" * 60, "abab", "ab", "abababab") + b"\xff" + b"ab" * 140,
    }


def tokenizer_json():
    def file(vocab, merges=(), text=None, model=(), **parts):
        whole = {"version": "1.0", "added_tokens": [], "normalizer": None,
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                 "post_processor": None, "decoder": {"type": "ByteLevel"}, **parts,
                 "model": {"type": "BPE", **dict(model), "vocab": vocab if isinstance(vocab, dict) else {v: i for i, v in enumerate(vocab)},
                           "merges": list(merges)}}
        out = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()
        return out if text is None else out + b"\xff" + text.encode()

    def sequence(*steps):
        return {"type": "Sequence", "pretokenizers": [*steps, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]}

    def split(regex, behavior="Isolated", invert=False):
        return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}

    def added(token, id_, **more):
        return {"id": id_, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True, **more}

    every = [chr(c) for c in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100), *range(0x100, 0x144)]]
    small, qwen = ["a", "b", "ab", "\u0120", "\u0120a"], r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    seeds = {
        "empty": b"", "object": b"{}", "small": file(small, ["a b", ["\u0120", "a"]], "ab aab"), "whole": file([*every, "ab"], ["a b"]),
        "nfc": file(every, text="e\u0301 a\u0323\u0302 \u1100\u1161\u11a8 x", normalizer={"type": "NFC"}),
        "nfc_regex": file(every, text="e\u0301\u0301 e", normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}]}, pre_tokenizer=sequence(split("e."))),
        "qwen": file([*every, "ab"], ["a b"], "ab 12 ab's\n\n x", pre_tokenizer=sequence(split(qwen))), "split": file(small, ["a b"], pre_tokenizer=sequence(split("[ab]"))),
        "removed": file(small, pre_tokenizer=sequence(split(qwen, "Removed", True))), "removed_text": file(small, pre_tokenizer=sequence(split("a", "Removed", True))),
        "digits": file(every, text="a  12 3", pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False}]}),
        "added": file(small, ["a b"], "ab<x>a<xy>", added_tokens=[added("<x>", 5), added("<xy>", 9, special=False)]), "ignore_merges": file([*every, "abc"], text="abc abcd", model={"ignore_merges": True}),
        "unknown": file(every, model={"unk_token": "a", "byte_fallback": True, "dropout": 0}), "gap": file({"a": 0, "b": 1, "ab": 70}, ["a b"]),
        "processors": file(small, post_processor={"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": []}]}),
    }
    for i, bad in enumerate([
            file(small, ["a c"]), file(small, ["b a"]), file(small, ["a b", "a b"]), file(small, [["a"]]), file(small, ["ab"]), file({"a": 0, "b": 0}), file({"a": -1}), file({"a": 1 << 40}), file({"a": 0.5}), file({"": 0}), file({"x y": 0}),
            file(small, added_tokens=[added("<x>", 1)]), file(small, added_tokens=[added("a", 7)]), file(small, added_tokens=[added("<x>", 5), added("<x>", 6)]), file(small, added_tokens=[added("<x>", 5, lstrip=True)]), file(small, added_tokens=[added("", 5)]),
            file(small, normalizer={"type": "NFKC"}), file(small, pre_tokenizer=None), file(small, pre_tokenizer={"type": "Metaspace"}), file(small, pre_tokenizer=sequence(split("("))), file(small, decoder={"type": "Fuse"}), file(small, truncation={"max_length": 1}),
            file(small, model={"dropout": 0.5}), file(small, model={"byte_fallback": True}), file(small, model={"end_of_word_suffix": "</w>"}), b'{"model":{"type":"BPE","vocab":{"\\ud800":0},"merges":[]}}', file(small)[:150], file(small)[:-1],
            file(small, pre_tokenizer=sequence(split("(", "Removed", True)))]):
        seeds["hostile_%02d" % i] = bad
    return seeds


def config():
    texts = {
        "empty": "", "object": "{}", "array": "[]", "numbers": "[0, -1, 9223372036854775807, 9223372036854775808, -9223372036854775808, 1.5, 1e308, 5e-324, -0.0, 0.1, 1e3]",
        "strings": "[\"\\u00e9\\ud83d\\ude00\\n\\\"\\\\\\/\\b\\f\\r\\t\\u0001\", \"\u00e9\u20ac\U0001f600\"]", "words": "[null, true, false, [], {}]",
        "overflow": "[1e999]", "half_pair": "[\"\\ud800\"]", "trailing_comma": "[1,]", "two_values": "[1]\n\n[2]", "key_twice": "{\"a\": 1,\n \"a\": 2}",
        "nested": "[" * 128 + "]" * 128, "nested_too_deep": "{\"a\":" * 129, "cut": "{\"model\": {\"d_model\": 6", "nul": "{}\0garbage", "bom": "\ufeff{}", "comment": "{/*x*/}",
        "model": {"model": {"vocab_size": 2048, "context": 128, "n_layers": 4, "d_model": 256, "n_heads": 4, "n_kv_heads": 2, "d_ff": 704, "norm": "rms", "norm_eps": 1e-5,
                            "activation": "swiglu", "position": "rope", "rope_theta": 10000, "rope_style": "half_split", "bias": False, "tied": False, "dropout": 0.1, "init_std": 0.02, "dtype": "f32"}},
        "train": {"train": {"steps": 1e3, "batch": 12, "context": 0, "accumulate": 2, "seed": 7, "log_every": 10, "eval_every": 0, "eval_batches": 0, "checkpoint_every": 0, "keep_last": 2,
                            "sample_every": 0, "sample_tokens": 0, "sample_prompt": "a \"b\"\n\u00e9", "sample_temperature": 0.8}, "data": {"dir": "/x y"}, "tally_version": "0.1.0"},
        "optim": {"optim": {"kind": "adamw", "lr": 3e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0, "clip": 1}, "schedule": {"kind": "wsd", "warmup": 100, "min_ratio": 0.1, "decay_fraction": 0.1}},
        "time_limit": {"train": {"time_limit": "1d2h30m5.5s", "checkpoint_minutes": 0.5, "save_wait": 60, "tensorboard": True}, "data": {"order": "shuffle"}}, "time_limit_line_break": {"train": {"time_limit": "5\n"}},
        "time_limit_huge": {"train": {"time_limit": "1" + "0" * 305 + "d"}},
        "unknown_key": {"optim": {"lrr": 1}}, "unknown_group": {"opt": {}}, "line_break_in_key": {"a\nb": 1}, "group_is_a_number": {"optim": 3}, "array_for_a_number": {"model": {"d_model": []}},
        "fraction": {"model": {"d_model": 1.5}}, "range": {"model": {"d_model": 0}}, "choice": {"optim": {"kind": "adam"}}, "long_choice": {"optim": {"kind": "a" * 3000}},
        "widest": {"model": {"vocab_size": 1 << 24, "context": 1 << 24, "n_layers": 4096, "d_model": 1 << 20, "n_heads": 4096, "n_kv_heads": 4096, "d_ff": 1 << 22}},
        "largest_batch": {"train": {"batch": 1 << 20, "accumulate": 1 << 20}, "model": {"context": 1 << 24}}, "warmup": {"schedule": {"warmup": 2000}}, "beta": {"optim": {"beta1": 0.9999999}},
        "flags": "--train.steps 100\n--lr 3e-4\n--d-model 1e2\n--bias true\n--model.dtype bf16\n--sample_prompt a b", "flags_wrong": "--lrr 1\n--kind x\n--seed 1.5\n--seed 99999999999999999999\n--tied maybe\n--lr nan\n--lr inf\n--seed\n-- x",
        "flags_line": "--train.seed -1\n--beta1 1\n--batch 0x10\n--wa\trmup 1",
    }
    return {name: t if isinstance(t, str) else json.dumps(t, indent=1, ensure_ascii=False) for name, t in texts.items()}


def pattern():
    texts = {"prose": "It's 1234 DON'T 'tis  we'LL\n\n  x\t\r\n", "scripts": "\u4e2d\u30fb\u6587AB\u3042\u3099 \u0434\u0430\u0301 \u00c9t\u00e9 \u01c5\u02b0 \u0661\u0662\u0663\u0664 \U0001f600\u200d",
             "spaces": " \u00a0\u3000\n \u2028\r\n\u180e \u0085  a  \n ", "symbols": "a//\n/b ;\n\n(x)!\r$ $$ '\u017fx _y", "odd": "\x01\x01a\0\0 \u3040\u3097\u30ab\ue000A\U0010ffff"}
    seeds = {"%s_%d" % (name, kind): bytes([kind]) + text.encode() for name, text in texts.items() for kind in range(8)}
    seeds |= {"broken_%d" % kind: bytes([kind]) + b"a\xff \xe2\x80\n\xc5'\xc5\xf0\x9f\x98 \xed\xa0\x80" for kind in range(8)}
    expressions = ["", "\\w+|.", "a*", "$", "\\s++$|\\s|\\S+", "[^\\S\\n]", "[]\\s[:space:]]+", "\\Q\\s\\E", "(?x) a # [ \\s\n b", "(a+)+$", "[a&&b]", "(", "\\", "[", "(?i:'s|ll)", "(?<=a)b|\\Ka", "(*LIMIT_MATCH=1)a"]
    seeds |= {"regex_%02d" % i: b"\x08" + e.encode() + b"\xffaab's  it\xe2\x80 \n aaaaaaaaaaaaaaaaaaaaaaaaaaab" for i, e in enumerate(expressions)}
    return seeds


write("safetensors", safetensors())
write("shard", shard())
write("npy", npy())
write("tokenizer", tokenizer())
write("tiktoken", tiktoken())
write("tokenizer_json", tokenizer_json())
write("config", config())
write("pattern", pattern())
