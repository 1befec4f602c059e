// Conversions between id widths, with range checks.
#include "tally/io/ids.h"

#include <algorithm>
#include <limits>

namespace tally {
namespace {

template <class F>
auto with_type(IdType type, const F& f) {
  switch (type) {
    case IdType::kU16:
      return f(uint16_t{});
    case IdType::kU32:
      return f(uint32_t{});
    case IdType::kI32:
      return f(int32_t{});
    case IdType::kI64:
      return f(int64_t{});
    default:
      return f(uint64_t{});
  }
}

}  // namespace

const char* id_type_name(IdType t) {
  static constexpr const char* kNames[] = {"?", "u16", "u32", "i32", "i64", "u64"};
  return kNames[static_cast<uint32_t>(t)];
}

std::optional<IdType> id_type_from_name(std::string_view name) {
  for (const IdType t : {IdType::kU16, IdType::kU32, IdType::kI32, IdType::kI64, IdType::kU64})
    if (name == id_type_name(t)) return t;
  return std::nullopt;
}

int64_t IdSpan::copy(int64_t start, int64_t n, int64_t limit, int32_t* out) const {
  TALLY_ASSERT(start >= 0 && n >= 0 && start <= size() && n <= size() - start);
  const uint64_t top = static_cast<uint64_t>(std::clamp<int64_t>(limit, 0, int64_t{1} << 31));
  return with_type(type, [&](auto zero) -> int64_t {
    using T = decltype(zero);
    const std::byte* from = data.data() + static_cast<size_t>(start) * sizeof(T);
    int64_t bad = -1;
    for (int64_t i = 0; i < n; ++i) {
      T id;
      std::memcpy(&id, from + static_cast<size_t>(i) * sizeof(T), sizeof(T));
      // A negative id becomes a huge unsigned one.
      if (static_cast<uint64_t>(id) >= top && bad < 0) bad = start + i;
      out[i] = static_cast<int32_t>(id);
    }
    return bad;
  });
}

IdSpan parse_raw_ids(Bytes bytes, IdType type, const std::string& name) {
  const size_t width = static_cast<size_t>(id_bytes(type));
  if (bytes.size() % width != 0)
    fail("{}: its {} bytes are not a multiple of {}, so it does not hold {} ids only", name, bytes.size(), width,
         id_type_name(type));
  return {type, bytes};
}

void encode_ids(std::span<const int32_t> ids, IdType type, std::vector<std::byte>& out, const std::string& where) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const size_t before = out.size();
    out.resize(before + ids.size() * sizeof(T));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || static_cast<uint64_t>(ids[i]) > static_cast<uint64_t>(std::numeric_limits<T>::max()))
        fail("{}: token id {} does not fit into {}", where, ids[i], id_type_name(type));
      const T id = static_cast<T>(ids[i]);
      std::memcpy(out.data() + before + i * sizeof(T), &id, sizeof(T));
    }
    return 0;
  });
}

void write_raw_ids(const fs::path& path, std::span<const int32_t> ids, IdType type) {
  std::vector<std::byte> bytes;
  encode_ids(ids, type, bytes, path.string());
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace tally
