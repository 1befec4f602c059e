// Header rules checked here: length at most 100 MB and inside the file; an object; for each tensor a dtype, a shape and
// two offsets; offsets in ascending order tile the data exactly (no hole, no overlap, nothing left over); the bytes of
// a tensor are its elements times the dtype's bits. Empty tensors and an empty or missing __metadata__ are legal.
#include "tally/io/safetensors.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tally/base/error.h"
#include "tally/base/fields.h"
#include "tally/base/json.h"

namespace tally {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr const char* kMetadataKey = "__metadata__";

struct FileDType {
  const char* name;
  uint32_t bits;
  std::optional<DType> dtype;
};
constexpr FileDType kFileDTypes[] = {
    {"F64", 64, DType::kF64},       {"F32", 32, DType::kF32},       {"BF16", 16, DType::kBF16},
    {"I64", 64, DType::kI64},       {"I32", 32, DType::kI32},       {"U16", 16, DType::kU16},
    {"U8", 8, DType::kU8},          {"F16", 16, DType::kF16},       {"BOOL", 8, DType::kBool},
    {"I8", 8, DType::kI8},          {"I16", 16, DType::kI16},       {"U32", 32, std::nullopt},
    {"U64", 64, std::nullopt},      {"C64", 64, std::nullopt},      {"F8_E4M3", 8, DType::kF8E4M3},
    {"F8_E5M2", 8, DType::kF8E5M2}, {"F8_E8M0", 8, DType::kF8E8M0}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},   {"F4", 4, DType::kF4E2M1x2},
};

// F4 counts numbers in the file and pairs of them (f4e2m1x2) in memory, as PyTorch does.
bool is_packed(DType dtype) { return dtype == DType::kF4E2M1x2; }

// "F64 F32 ..."
std::string loadable_names() {
  std::string names;
  for (const FileDType& d : kFileDTypes)
    if (d.dtype) names += (names.empty() ? "" : " ") + std::string(d.name);
  return names;
}

const char* file_dtype_name(DType dtype) {
  for (const FileDType& d : kFileDTypes)
    if (d.dtype == dtype) return d.name;
  fail("safetensors has no name for dtype {}", static_cast<int>(dtype));
}

// a * b, or false when it does not fit.
bool multiply(uint64_t a, uint64_t b, uint64_t& product) { return !__builtin_mul_overflow(a, b, &product); }

uint64_t unsigned_at(const Json& json, const std::string& where, const char* what) {
  if (!json.is_int() || json.as_int() < 0)
    fail("{}: {} must hold whole numbers from 0, found {}", where, what, printable(json.dump()));
  return static_cast<uint64_t>(json.as_int());
}

struct Entry {
  SafeTensor tensor;
  uint64_t begin = 0, end = 0;
};

const Json& member(const Json& json, const char* key, const std::string& where) {
  if (const Json* value = json.find(key)) return *value;
  fail("{}: {} is missing", where, key);
}

// Name, dtype, shape, offsets of one tensor; its byte count is checked, its place is not yet.
Entry read_entry(const std::string& name, const Json& json, const std::string& file) {
  const std::string where = fmt::format("{}: tensor {}", file, in_quotes(name));
  if (!json.is_object()) fail("{}: must be an object", where);
  const Json &dtype = member(json, "dtype", where), &shape = member(json, "shape", where),
             &offsets = member(json, "data_offsets", where);
  if (!dtype.is_string()) fail("{}: dtype must be a string", where);
  if (!shape.is_array()) fail("{}: shape must be an array", where);
  if (!offsets.is_array() || offsets.as_array().size() != 2) fail("{}: data_offsets must be two numbers", where);
  Entry e;
  e.tensor.name = name;
  e.tensor.dtype_name = dtype.as_string();
  if (shape.as_array().size() > static_cast<size_t>(kMaxRank))
    fail("{}: it has {} axes; at most {} are supported", where, shape.as_array().size(), kMaxRank);
  uint64_t elements = 1, above_zero = 1;  // the second without the zeros, so that strides fit as well
  bool fits = true;
  for (const Json& size : shape.as_array()) {
    const uint64_t n = unsigned_at(size, where, "shape");
    elements = n == 0 ? 0 : elements;
    fits = multiply(above_zero, n == 0 ? 1 : n, above_zero) && above_zero <= uint64_t{INT64_MAX} / 8 && fits;
    e.tensor.shape.v[e.tensor.shape.rank++] = static_cast<int64_t>(n);
  }
  if (!fits) fail("{}: the shape {} is too large", where, shape.dump());
  if (elements > 0) elements = above_zero;
  e.begin = unsigned_at(offsets.as_array()[0], where, "data_offsets");
  e.end = unsigned_at(offsets.as_array()[1], where, "data_offsets");
  if (e.begin > e.end) fail("{}: its data ends ({}) before it begins ({})", where, e.end, e.begin);
  for (const FileDType& d : kFileDTypes) {
    if (e.tensor.dtype_name != d.name) continue;
    e.tensor.dtype = d.dtype;
    uint64_t bits = 0;
    if (!multiply(elements, d.bits, bits)) fail("{}: the shape {} is too large", where, shape.dump());
    if (bits % 8 != 0 || bits / 8 != e.end - e.begin)
      fail("{}: shape {} of {} is {} bytes, but data_offsets give {}", where, shape.dump(), d.name, (bits + 7) / 8,
           e.end - e.begin);
    if (!d.dtype || !is_packed(*d.dtype)) continue;
    Dims& pairs = e.tensor.shape;
    if (pairs.rank == 0 || pairs[pairs.rank - 1] % 2 != 0)
      fail("{}: the last axis of shape {} is odd; {} lies in pairs", where, shape.dump(), d.name);
    pairs[pairs.rank - 1] /= 2;
  }
  return e;
}

SafeMetadata read_metadata(const Json& json, const std::string& file) {
  SafeMetadata metadata;
  if (json.is_null()) return metadata;
  if (!json.is_object()) fail("{}: {} must be an object of strings", file, kMetadataKey);
  for (const auto& [key, value] : json.as_object()) {
    if (!value.is_string()) fail("{}: {} must hold strings only; {} is not one", file, kMetadataKey, in_quotes(key));
    metadata.emplace_back(key, value.as_string());
  }
  return metadata;
}

// Entries in the order of their bytes; every byte of the data belongs to exactly one.
void place_entries(std::vector<Entry>& entries, Bytes data, const std::string& file) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t at = 0;
  for (Entry& e : entries) {
    if (e.begin != at)
      fail("{}: tensor {} begins at {}, but the data before it ends at {}: {}", file, in_quotes(e.tensor.name), e.begin,
           at, e.begin < at ? "two tensors share bytes" : "there is a hole");
    at = e.end;
  }
  if (at > data.size()) fail("{}: truncated: the tensors need {} bytes, {} missing", file, at, at - data.size());
  if (at < data.size()) fail("{}: {} bytes lie behind the last tensor", file, data.size() - at);
  for (Entry& e : entries) e.tensor.data = data.subspan(e.begin, e.end - e.begin);
}

}  // namespace

SafeTensors::SafeTensors(const fs::path& path) : mapped_(path), name_(path.string()) { read(mapped_.bytes()); }

SafeTensors SafeTensors::parse(Bytes bytes, const std::string& name) {
  SafeTensors file;
  file.name_ = name;
  file.read(bytes);
  return file;
}

void SafeTensors::read(Bytes bytes) {
  const uint64_t length = load_number<uint64_t>(take_bytes(bytes, 0, 8, name_, "the header length"), 0);
  if (length > kMaxHeader)
    fail("{}: the header length is {}; at most {} are allowed: this is not a safetensors file", name_, length,
         kMaxHeader);
  const Bytes header = take_bytes(bytes, 8, length, name_, "the header");
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  if (!text.starts_with('{')) fail("{}: the header does not begin with {{: this is not a safetensors file", name_);
  const Json json = Json::parse(text, name_ + " (header)");
  std::vector<Entry> entries;
  for (const auto& [key, value] : json.as_object()) {
    if (key == kMetadataKey)
      metadata_ = read_metadata(value, name_);
    else
      entries.push_back(read_entry(key, value, name_));
  }
  const Bytes data = bytes.subspan(8 + length);
  place_entries(entries, data, name_);
  data_bytes_ = data.size();
  for (Entry& e : entries) tensors_.push_back(std::move(e.tensor));
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(), [&](size_t a, size_t b) { return tensors_[a].name < tensors_[b].name; });
}

const std::string* SafeTensors::find_metadata(std::string_view key) const {
  for (const auto& [k, v] : metadata_)
    if (k == key) return &v;
  return nullptr;
}

const SafeTensor* SafeTensors::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](size_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

const SafeTensor& SafeTensors::at(std::string_view name) const {
  const SafeTensor* tensor = find(name);
  if (tensor == nullptr) {
    std::vector<std::string> names;
    for (const SafeTensor& t : tensors_) names.push_back(t.name);
    const std::string near = nearest(name, names);
    fail("{}: has no tensor {}{}", name_, in_quotes(name), near.empty() ? "" : "; the nearest is " + printable(near));
  }
  if (!tensor->dtype)
    fail("{}: tensor {} is {}, a dtype that cannot be loaded ({} can)", name_, in_quotes(tensor->name),
         in_quotes(tensor->dtype_name), loadable_names());
  return *tensor;
}

std::string safetensors_header(const std::vector<SafeItem>& items, const SafeMetadata& metadata) {
  Json::Object header;
  if (!metadata.empty()) {
    Json map = Json::object();
    for (const auto& [key, value] : metadata) map.set(key, value);
    header.emplace_back(kMetadataKey, std::move(map));
  }
  std::vector<std::string> names;
  uint64_t offset = 0;
  for (const SafeItem& item : items) {
    uint64_t bytes = static_cast<uint64_t>(item_size(item.dtype));
    bool fits = item.name != kMetadataKey;
    if (!fits) fail("{} is reserved in safetensors; no tensor may have that name", kMetadataKey);
    Json shape = Json::array();
    for (int i = 0; i < item.shape.rank; ++i) {
      fits = item.shape[i] >= 0 && multiply(bytes, static_cast<uint64_t>(item.shape[i]), bytes) && fits;
      shape.push_back(is_packed(item.dtype) && i + 1 == item.shape.rank ? 2 * item.shape[i] : item.shape[i]);
    }
    if (is_packed(item.dtype) && item.shape.rank == 0)
      fail("tensor {}: a pair of F4 numbers needs an axis in safetensors; reshape it to (1,)", item.name);
    const uint64_t begin = offset;
    fits = fits && !__builtin_add_overflow(offset, bytes, &offset) && offset <= uint64_t{INT64_MAX};
    if (!fits) fail("tensor {}: the shape {} is too large to write", item.name, shape.dump());
    Json offsets = Json::array();
    offsets.push_back(static_cast<int64_t>(begin));
    offsets.push_back(static_cast<int64_t>(offset));
    Json entry = Json::object();
    entry.set("dtype", file_dtype_name(item.dtype))
        .set("shape", std::move(shape))
        .set("data_offsets", std::move(offsets));
    header.emplace_back(item.name, std::move(entry));
    names.push_back(item.name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    fail("tensor {} would stand twice in one safetensors file", *twice);
  std::string text = Json(std::move(header)).dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeader)
    fail("a safetensors header of {} bytes; at most {} are allowed", text.size(), kMaxHeader);
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text;
}

uint64_t safetensors_bytes(const std::vector<SafeItem>& items, const SafeMetadata& metadata) {
  uint64_t bytes = safetensors_header(items, metadata).size();
  for (const SafeItem& item : items) bytes += static_cast<uint64_t>(item.shape.numel() * item_size(item.dtype));
  return bytes;
}

void write_safetensors(const fs::path& path, const std::vector<SafeItem>& items, const SafeMetadata& metadata) {
  const std::string header = safetensors_header(items, metadata);
  AtomicFile file(path);
  file.write(header);
  for (const SafeItem& item : items) {
    const size_t bytes = static_cast<size_t>(item.shape.numel() * item_size(item.dtype));
    TALLY_ASSERT(item.data != nullptr || bytes == 0);
    if (bytes > 0) file.write(item.data, bytes);
  }
  file.commit();
}

}  // namespace tally
