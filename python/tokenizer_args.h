// What Python gives to a tokenizer and gets from it: text as str or bytes, ids as lists, arrays or tensors, special
// tokens allowed and refused in tiktoken's words.
#pragma once

#include <nanobind/ndarray.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "python/bind.h"
#include "tally/text/tokenizer.h"

namespace tally::py {

using Ids = std::vector<int32_t>;

// The bytes of a str or of bytes; they live as long as this. A str's lone surrogates become U+FFFD, as tiktoken has it.
class TextArg {
 public:
  explicit TextArg(nb::handle text);
  std::string_view view() const { return view_; }

 private:
  nb::object kept_;
  std::string_view view_;
};

// Ids of a list or another iterable of ints, of an array of integers of any strides, or of a tensor. Arrays of 32-bit
// ids that are contiguous are not copied.
class IdsArg {
 public:
  explicit IdsArg(nb::handle ids);
  std::span<const int32_t> span() const { return view_; }

 private:
  nb::object kept_;
  Ids own_;
  std::span<const int32_t> view_;
};

// Which special tokens become their ids. Without allowed_special and disallowed_special, allow_special says it for all.
// With one of them, as in tiktoken: allowed_special is "all" or names (default: none), disallowed_special "all"
// (default: all that are not allowed) or names; a disallowed one in the text is a ValueError, the rest are text.
struct SpecialsArg {
  bool allow_special;
  nb::object allowed, disallowed;
  SpecialPolicy policy(const Tokenizer& t) const;
  // ValueError when the text holds one of the disallowed that a policy cannot name.
  void check(const Tokenizer& t, std::string_view text) const;
};

nb::list list_of(std::span<const int32_t> ids);
nb::object array_of(Ids ids);  // numpy.ndarray of int32 that owns the ids
nb::object str_of(std::string_view bytes, const char* errors);

}  // namespace tally::py
