// What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput: libFuzzer calls it in the preset fuzz,
// replay_main.cpp calls it with the files of tests/fuzz/corpus in every other build (ctest, label fast).
#pragma once

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tally/base/error.h"
#include "tally/io/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tally::fuzz {

// A wrong result. Not an Error, so it ends the program as a crash does and libFuzzer keeps the input.
inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

constexpr size_t kLongestMessage = 2000;  // bytes: what a refusal shows of its input is cut

// True when f returned, false when it refused by an Error: one printable line of moderate length that begins with
// `name`. Whatever else is thrown goes on and ends the program.
template <class F>
bool accepted(std::string_view name, const F& f) {
  try {
    f();
    return true;
  } catch (const Error& e) {
    const std::string_view line = e.what();
    const bool printable =
        std::all_of(line.begin(), line.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
    require(printable, "a message with control characters: " + std::string(line));
    require(line.starts_with(name), "a message without the file's name: " + std::string(line));
    require(line.size() <= kLongestMessage, "a message of " + std::to_string(line.size()) + " bytes");
    return false;
  }
}

inline Bytes bytes_of(const uint8_t* data, size_t size) { return {reinterpret_cast<const std::byte*>(data), size}; }
inline Bytes bytes_of(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

inline std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

inline bool equal(Bytes a, Bytes b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

// A view into `whole`; an empty one may point anywhere.
inline bool inside(Bytes part, Bytes whole) {
  return part.empty() || (part.data() >= whole.data() && part.size() <= whole.size() &&
                          static_cast<size_t>(part.data() - whole.data()) <= whole.size() - part.size());
}

// One folder a process for what can only be read or written as a file; removed at the end. TMPDIR says where.
const std::filesystem::path& scratch_folder();

}  // namespace tally::fuzz
