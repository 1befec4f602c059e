// For tests of parsers: a small valid file with every prefix and many changed bytes.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tally/base/error.h"
#include "tally/io/bytes.h"

namespace tally::test {

inline Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

constexpr int kCorruptValues[] = {0, 1, 2, 7, 0x1f, '"', ',', '0', '9', '[', ']', '{', '}', 0x7f, 0x80, 0xfe, 0xff};

struct CorruptCounts {
  int loaded = 0, refused = 0;
};

// Calls load(bytes) for every prefix and with each byte set to each of several values: it must return or throw an
// Error of one line that begins with `name`. Each input is a copy of exact size, so that a sanitizer sees an overrun.
template <class F>
CorruptCounts try_corrupted(const std::string& valid, const std::string& name, const F& load) {
  CorruptCounts counts;
  const auto attempt = [&](const std::string& content) {
    const std::vector<char> exact(content.begin(), content.end());
    try {
      load(Bytes{reinterpret_cast<const std::byte*>(exact.data()), exact.size()});
      ++counts.loaded;
    } catch (const Error& e) {
      const std::string_view line = e.what();
      EXPECT_TRUE(line.starts_with(name)) << line;
      EXPECT_EQ(line.find('\n'), std::string_view::npos) << line;
      ++counts.refused;
    }
  };
  for (size_t i = 0; i < valid.size(); ++i) {
    attempt(valid.substr(0, i));
    for (const int value : kCorruptValues) {
      std::string changed = valid;
      changed[i] = static_cast<char>(value);
      attempt(changed);
    }
    std::string flipped = valid;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    attempt(flipped);
  }
  attempt(valid + std::string(1, '\0'));
  return counts;
}

}  // namespace tally::test
