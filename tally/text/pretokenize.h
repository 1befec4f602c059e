// GPT-2's pre-tokenizer, written by hand over UTF-8 bytes. It gives the pieces of the pattern
//   '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// (openai/gpt-2, encoder.py) with \p of Unicode 16 and \s = White_Space. A byte that is not part of valid UTF-8
// counts as a character of the symbol class, so that any bytes are split and the pieces join to the input again.
// A piece depends only on the bytes from its start on: that is what lets text be cut, streamed and split in parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tally {

// Bytes of the first piece of the n > 0 bytes at p, taken as all the text that is left.
size_t gpt2_piece(const char* p, size_t n);

// If more text may follow, the first piece is final when it ends at least this many bytes before the end of what is
// known: a run of white space (last character up to 3 bytes) looks one character (up to 4 bytes) ahead.
inline constexpr size_t kPieceLookahead = 8;

// Calls f(std::string_view piece) for each piece in order.
template <class F>
void for_each_piece(std::string_view text, const F& f) {
  while (!text.empty()) {
    const size_t length = gpt2_piece(text.data(), text.size());
    f(text.substr(0, length));
    text.remove_prefix(length);
  }
}

// Lengths of all pieces in bytes.
std::vector<size_t> piece_lengths(std::string_view text);

// The first position in [from, text.size()) where a piece starts whatever stands before it (ASCII white space after a
// character that is not white space), or text.size() when there is none. 0 is never given.
size_t next_safe_border(std::string_view text, size_t from);

}  // namespace tally
