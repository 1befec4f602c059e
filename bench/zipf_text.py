#!/usr/bin/env python3
"""Text of a given size whose words follow Zipf's law, the same for the same seed: zipf_text.py OUT MEGABYTES [SEED].

Word number r of a million has the frequency 1 / (r + 2.7) (Mandelbrot's form); words are random letters, frequent ones
shorter; a line ends every 12 words on average. Used to see that training of a tokenizer is linear in the text.
"""
import sys

import numpy as np

WORDS = 1_000_000
CHUNK = 1_000_000  # words drawn at a time


def words(rng):
    letters = np.frombuffer(b"etaoinshrdlcumwfgypbvkjxqz", dtype=np.uint8)
    share = 1 / (np.arange(26) + 2.0)
    lengths = np.minimum(2 + np.log2(1 + np.arange(WORDS)) / 2 + rng.poisson(1.5, WORDS), 24).astype(int)
    text = letters[rng.choice(26, int(lengths.sum()), p=share / share.sum())].tobytes()
    ends = np.cumsum(lengths)
    return [text[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist())]


def main():
    out, size = sys.argv[1], int(float(sys.argv[2]) * 1e6)
    rng = np.random.default_rng(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    vocabulary = words(rng)
    cumulative = np.cumsum(1 / (np.arange(WORDS) + 2.7))
    cumulative /= cumulative[-1]
    written = 0
    with open(out, "wb") as file:
        while written < size:
            ranks = np.searchsorted(cumulative, rng.random(CHUNK))
            breaks = rng.random(CHUNK) < 1 / 12
            block = b"".join(
                vocabulary[r] + (b".\n" if b else b" ") for r, b in zip(ranks.tolist(), breaks.tolist())
            )
            written += file.write(block[: size - written])


if __name__ == "__main__":
    main()
