// How tokenizer.json says a pattern: its pre-tokenizer is a list of Split steps by regular expressions, each on the
// pieces of the one before, and a ByteLevel step. Included by tokenizer_json*.cpp only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tally/text/pattern.h"

namespace tally {

// The pattern of Split steps, at least one. Error when the expression is wrong, or several make no known pattern.
Pattern pattern_of_splits(const std::vector<std::string>& expressions);
// The other way round; empty for GPT-2's, which ByteLevel has itself (use_regex).
std::vector<std::string> splits_of_pattern(const Pattern& pattern);

// Digits (each alone, or runs) and then GPT-2's pattern on what stands between them, as one expression.
std::string digits_expression(bool individual);

}  // namespace tally
