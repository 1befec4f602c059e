"""A text of words from a seeded generator: zipf_text.py FILE BYTES SEED. Their ranks follow Zipf's law with exponent 1.1 over
two million random words; 16 words a line."""
import sys

import numpy


def zipf_text(path, size, seed):
    rng = numpy.random.default_rng(seed)
    letters = numpy.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", dtype="u1")
    lengths = numpy.minimum(rng.geometric(0.18, 2_000_000) + 1, 24)
    spelled = letters[numpy.minimum(rng.geometric(0.12, lengths.sum()) - 1, 25)].tobytes()
    ends = numpy.cumsum(lengths)
    words = [spelled[e - n:e] for e, n in zip(ends.tolist(), lengths.tolist())]
    weights = 1 / numpy.arange(1, len(words) + 1) ** 1.1
    total = numpy.cumsum(weights / weights.sum())
    written = 0
    with open(path, "wb") as out:
        while written < size:
            ranks = numpy.searchsorted(total, rng.random(1 << 20))
            ranks = numpy.minimum(ranks, len(words) - 1).tolist()
            lines = b"\n".join(b" ".join(words[r] for r in ranks[i:i + 16]) for i in range(0, len(ranks), 16)) + b"\n"
            written += out.write(lines[:size - written])


if __name__ == "__main__":
    zipf_text(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
