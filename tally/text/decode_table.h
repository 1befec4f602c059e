// Token bytes for decoding: 16 bytes a token, copied whole whatever its length; longer ones are looked up.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tally/text/vocab.h"

namespace tally {

class DecodeTable {
 public:
  DecodeTable() = default;
  explicit DecodeTable(const TokenTable& tokens);

  // Error when an id is outside the vocabulary, or left out of it.
  std::string decode(const TokenTable& tokens, std::span<const int32_t> ids) const;

 private:
  static constexpr uint8_t kLong = 255;
  [[noreturn]] void refuse(const TokenTable& tokens, std::span<const int32_t> ids) const;

  std::vector<uint8_t> lengths_;  // kLong: this or more
  std::vector<std::array<char, 16>> bytes_;
};

}  // namespace tally
