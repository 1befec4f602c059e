// Distinct pre-tokens of texts with their counts; the first stage of BPE training. Words are views into the texts.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tally/text/specials.h"

namespace tally {

struct WordCount {
  std::string_view word;
  int64_t count;
};

// GPT-2's pre-tokens of the texts between special tokens, ascending by bytes. Parallel; the result is the same for
// any number of threads.
std::vector<WordCount> count_words(std::span<const std::string_view> texts, const SpecialSet& specials);

}  // namespace tally
