// See decode_table.h.
#include "tally/text/decode_table.h"

#include <algorithm>
#include <cstring>

#include "tally/base/error.h"

namespace tally {

DecodeTable::DecodeTable(const TokenTable& tokens) {
  lengths_.reserve(static_cast<size_t>(tokens.size()));
  bytes_.resize(static_cast<size_t>(tokens.size()));
  for (int32_t id = 0; id < tokens.size(); ++id) {
    const std::string_view bytes = tokens[id];
    lengths_.push_back(static_cast<uint8_t>(std::min<size_t>(bytes.size(), kLong)));
    std::memcpy(bytes_[static_cast<size_t>(id)].data(), bytes.data(), std::min<size_t>(bytes.size(), 16));
  }
}

void DecodeTable::refuse(const TokenTable& tokens, std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokens.size())
      fail("token id {} is outside the vocabulary of {} tokens (0 to {})", id, tokens.size(), tokens.size() - 1);
    if (tokens[id].empty()) fail("token id {} is one that the vocabulary leaves out", id);
  }
  fail("the ids changed while they were decoded");
}

std::string DecodeTable::decode(const TokenTable& tokens, std::span<const int32_t> ids) const {
  const auto n = static_cast<uint32_t>(lengths_.size());
  size_t total = 0;
  bool bad = false;
  for (const int32_t id : ids) {
    const auto i = static_cast<uint32_t>(id);
    if (i >= n) refuse(tokens, ids);
    const uint8_t length = lengths_[i];
    bad |= length == 0;
    total += length == kLong ? tokens[id].size() : length;
  }
  if (bad) refuse(tokens, ids);
  std::string out(total + 16, '\0');
  char* to = out.data();
  for (const int32_t id : ids) {
    const auto i = static_cast<size_t>(id);
    const size_t length = lengths_[i];
    if (length <= 16) [[likely]] {
      std::memcpy(to, bytes_[i].data(), 16);
      to += length;
    } else {
      const std::string_view bytes = tokens[id];
      std::memcpy(to, bytes.data(), bytes.size());
      to += bytes.size();
    }
  }
  out.resize(total);
  return out;
}

}  // namespace tally
