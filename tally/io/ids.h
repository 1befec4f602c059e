// Token ids as they lie in files: fixed-width little-endian integers, read as int32. Headerless files are what numpy's
// tofile makes; their size must be a multiple of the width.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tally/base/file.h"
#include "tally/io/bytes.h"

namespace tally {

// The numbers are the dtype codes of `.tok` shards; shards use kU16 and kU32 only.
enum class IdType : uint32_t { kU16 = 1, kU32 = 2, kI32 = 3, kI64 = 4, kU64 = 5 };

constexpr int64_t id_bytes(IdType t) { return t == IdType::kU16 ? 2 : t == IdType::kU32 || t == IdType::kI32 ? 4 : 8; }
const char* id_type_name(IdType t);                              // "u16"
std::optional<IdType> id_type_from_name(std::string_view name);  // "u16", "u32", "i32", "i64", "u64"

// Ids in mapped memory.
struct IdSpan {
  IdType type = IdType::kU16;
  Bytes data;
  int64_t size() const { return static_cast<int64_t>(data.size()) / id_bytes(type); }

  // Copies ids [start, start + n) to out. Returns -1, or the position of the first id outside [0, limit).
  // The range must lie inside [0, size()).
  int64_t copy(int64_t start, int64_t n, int64_t limit, int32_t* out) const;
};

// A headerless file. Throws Error naming the file when its size is not a multiple of the width.
IdSpan parse_raw_ids(Bytes bytes, IdType type, const std::string& name);

// Ids as `type` into out (id_bytes(type) each). Throws Error naming the first id that does not fit, and `where`.
void encode_ids(std::span<const int32_t> ids, IdType type, std::vector<std::byte>& out, const std::string& where);

// Writes a headerless file, complete or not at all.
void write_raw_ids(const fs::path& path, std::span<const int32_t> ids, IdType type);

}  // namespace tally
