// Little-endian numbers inside a span of bytes, with the bounds checked. For file headers: every format here is
// little-endian, and so is every machine Tally runs on (checked below).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "tally/base/error.h"

namespace tally {

static_assert(std::endian::native == std::endian::little, "files are read and written as they lie in memory");

using Bytes = std::span<const std::byte>;

// Bytes [offset, offset + n) of a file called `name`. Throws Error naming the file and the missing bytes.
inline Bytes take_bytes(Bytes file, uint64_t offset, uint64_t n, const std::string& name, const char* what) {
  if (offset > file.size() || n > file.size() - offset) {
    const uint64_t present = offset > file.size() ? 0 : file.size() - offset;
    fail("{}: truncated: {} needs {} bytes at offset {}, {} missing", name, what, n, offset, n - present);
  }
  return file.subspan(offset, n);
}

// The number at `offset`; the caller has checked that it lies inside.
template <class T>
T load_number(Bytes bytes, size_t offset) {
  TALLY_ASSERT(offset <= bytes.size() && sizeof(T) <= bytes.size() - offset);
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

}  // namespace tally
