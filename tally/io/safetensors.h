// The safetensors container: u64 header length, JSON header, tensor bytes without holes or overlaps.
// Source: github.com/huggingface/safetensors, README "Format". Reading maps the file and copies nothing; every length
// is checked against the file before it is used, so memory stays small whatever the file claims.
// parse() is a pure function of bytes and a name, for fuzzing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tally/base/file.h"
#include "tally/core/view.h"
#include "tally/io/bytes.h"

namespace tally {

struct SafeTensor {
  std::string name;
  std::string dtype_name;      // as in the file: "F32", "BF16", "F8_E4M3" ...
  std::optional<DType> dtype;  // empty when Tally does not compute with it; it can still be listed
  Dims shape;
  Bytes data;  // may be unaligned: copy it, or load by memcpy
};

using SafeMetadata = std::vector<std::pair<std::string, std::string>>;

class SafeTensors {
 public:
  SafeTensors() = default;
  // Maps the file. Throws Error naming the file and what is missing or wrong.
  explicit SafeTensors(const fs::path& path);
  // The bytes must outlive the result.
  static SafeTensors parse(Bytes bytes, const std::string& name);

  const std::string& file() const { return name_; }
  const std::vector<SafeTensor>& tensors() const { return tensors_; }  // in the order of their bytes
  const SafeMetadata& metadata() const { return metadata_; }
  const std::string* find_metadata(std::string_view key) const;  // nullptr when absent
  const SafeTensor* find(std::string_view name) const;           // nullptr when absent
  // Throws Error naming the file, the tensor and the nearest name; and for a dtype Tally does not compute with.
  const SafeTensor& at(std::string_view name) const;
  uint64_t data_bytes() const { return data_bytes_; }

 private:
  void read(Bytes bytes);
  MappedFile mapped_;
  std::string name_;
  std::vector<SafeTensor> tensors_;
  std::vector<size_t> by_name_;  // indices of tensors_, sorted by name
  SafeMetadata metadata_;
  uint64_t data_bytes_ = 0;
};

// One tensor to write: row-major, numel * item_size(dtype) bytes at `data` (null when there are none).
struct SafeItem {
  std::string name;
  DType dtype = DType::kF32;
  Dims shape;
  const void* data = nullptr;
};

// The header alone, its length in front, padded with spaces to a multiple of 8 bytes. Throws Error when a name stands
// twice, is "__metadata__", or a size overflows.
std::string safetensors_header(const std::vector<SafeItem>& items, const SafeMetadata& metadata);

// Size of the file write_safetensors makes.
uint64_t safetensors_bytes(const std::vector<SafeItem>& items, const SafeMetadata& metadata);

// Writes the items in the order given, complete or not at all (AtomicFile); same arguments, same bytes.
void write_safetensors(const fs::path& path, const std::vector<SafeItem>& items, const SafeMetadata& metadata = {});

}  // namespace tally
