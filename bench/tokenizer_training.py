"""The sections train and zipf of bench/tokenizers.py. Each gives (its text for docs/benchmarks.md, what misses its bar)."""
import statistics
import time

import tokenizer_vocabularies
from contest import ROOT, call, json_lines, say
from tokenizer_contests import DOUBLING_BAR, mixed, table


def training_files(options, folder, text):
    """The documents with <|endoftext|> between them, for programs that read a file."""
    path = folder / "train.txt"
    with open(path, "wb") as out:
        for i in range(text.slices[-1][1]):
            out.write(text.document(i) + tokenizer_vocabularies.END.encode())
    return path


def tally_train(options, folder, path, vocabulary, *flags):
    out = folder / "trained"
    _, rss = call(["rm", "-rf", out], {})
    text, rss = call([options.tally, "tokenizer", "train", "--input", path, "--kind", "bpe", "--vocab-size", vocabulary + 1,
                      "--special", tokenizer_vocabularies.END, "--out", out, *flags], {})
    merges = (out / "merges.txt").read_text().splitlines()[1:]
    return merges, rss


def timed(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def train(options, programs, folder):
    vocabulary, misses = 32_000, []
    text = mixed(options, options.train_megabytes)
    path = training_files(options, folder, text)
    python, script = options.peers / "bin" / "python", ROOT / "bench" / "tokenizer_train.py"

    def peer(name):
        out, rss = call([python, script, name, text.text, text.ends_file, text.slices[-1][1], vocabulary], {})
        return json_lines(out)[-1], rss

    found = {"Tally": [], "HF tokenizers": [], "rustbpe": []}
    merges = {}
    for i in range(options.rounds):
        for name in found:
            if name == "Tally":
                seconds, (pairs, rss) = timed(tally_train, options, folder, path, vocabulary, "--tie", "smallest-ids")
                merges[name] = pairs
            else:
                seconds, (answer, rss) = timed(peer, "hf" if name.startswith("HF") else name)
                seconds = answer["seconds"]
                merges[name] = answer["merges"]
            found[name].append((seconds, rss))
            say(f"round {i + 1}: {name} {seconds:.1f} s, {rss / 2**20:,.0f} MiB")
    rows = []
    references = {"rustbpe": tally_train(options, folder, path, vocabulary, "--tie", "smallest-byte-ids")[0]}
    our_rss = statistics.median(r for _, r in found["Tally"])
    for name, results in found.items():
        by = statistics.median(s / o for (s, _), (o, _) in zip(results, found["Tally"]))
        rss = statistics.median(r for _, r in results)
        reference = references.get(name, merges["Tally"])
        same = next((k for k, (a, b) in enumerate(zip(merges[name], reference)) if a != b), len(reference))
        bar = {"HF tokenizers": 5, "rustbpe": 3}.get(name, 0)
        rows.append([name, f"{statistics.median(s for s, _ in results):.1f} s", f"{by:.2f}", bar or "", f"{rss / 2**20:,.0f} MiB",
                     f"{our_rss / rss:.2f}", f"{same:,} of {len(reference):,}",
                     f"{len(set(merges[name]) & set(reference)):,}"])
        misses += [f"training: {by:.2f} x {name}"] if by < bar else []
    small = ""
    if options.shared:
        corpus = options.shared / "data" / "corpus" / "text" / "cs336_corpus.en.txt"
        times = [timed(tally_train, options, folder, corpus, 499)[0] for _ in range(max(7, options.rounds))]
        small = f"\n\n{corpus.name} to 500 entries: {statistics.median(times) * 1e3:.0f} ms for the whole program (bar: 50 ms)."
        misses += [f"corpus.en: {statistics.median(times):.3f} s"] if statistics.median(times) > 0.05 else []
    if our_rss * 3 > statistics.median(r for _, r in found["HF tokenizers"]):
        misses.append("training: more than a third of HF's memory")
    return f"## Tokenizers: training\n\n{text.bytes / 1e6:.0f} MB of the mixed text to {vocabulary:,} entries, gpt2's pattern, ties to the " \
           f"smallest ids; medians of {options.rounds} interleaved rounds. Tally's time is that of the whole program, reading and " \
           "writing included; the peers' that of the call, with the documents in memory. Memory is the largest resident set of the " \
           "process. Merges are compared with Tally's under the peer's rule for ties (smallest-ids, smallest-byte-ids).\n\n" + \
        table(["program", "time", "Tally is faster by", "bar", "memory", "Tally's part of it", "first merges the same",
               "merges in common"], rows) + small, misses


def zipf(options, programs, folder):
    path, rows, misses, before = folder / "zipf.txt", [], [], None
    for part in (8, 4, 2, 1):
        megabytes = options.zipf_megabytes // part
        call([options.peers / "bin" / "python", ROOT / "bench" / "zipf_text.py", path, megabytes * 1_000_000, options.seed], {})
        seconds, (merges, rss) = timed(tally_train, options, folder, path, 32_000)
        cost = seconds / before if before else 0
        rows.append([f"{megabytes} MB", f"{seconds:.1f} s", f"{megabytes / seconds:.1f}", f"{cost:.2f}" if before else "",
                     f"{rss / 2**20:,.0f} MiB"])
        misses += [f"{megabytes} MB: {cost:.2f} x the half"] if cost > DOUBLING_BAR else []
        before = seconds
        say(f"{megabytes} MB: {seconds:.1f} s")
    return "## Tokenizers: training on a generated text\n\nWords by Zipf's law from a seeded generator, to 32,000 entries, whole program.\n\n" + \
        table(["text", "time", "MB/s", "by the half's time", "memory"], rows), misses
