// NumPy's .npy (versions 1, 2, 3; little-endian, C order) and uncompressed .npz (a zip of .npy members).
// Sources: numpy.lib.format; PKWARE APPNOTE.TXT 6.3 (zip, zip64). parse_* are pure functions of bytes and a name.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tally/base/file.h"
#include "tally/core/view.h"
#include "tally/io/ids.h"

namespace tally {

struct NpyArray {
  std::string descr;           // as in the file: "<f4"
  std::optional<DType> dtype;  // empty for others of known size: u4, u8, strings U and S
  Dims shape;
  Bytes data;  // row-major, may be unaligned

  // As token ids: u2, u4, i4, i8, u8. Throws Error naming `name` for other kinds.
  IdSpan ids(const std::string& name) const;
  // A single string (kind U or S, no axes) as UTF-8 without its padding. Throws Error naming `name` for other kinds.
  std::string text(const std::string& name) const;
};

// Throws Error naming the file: not .npy, truncated, Fortran order, big-endian, structured, more than kMaxRank axes.
NpyArray parse_npy(Bytes bytes, const std::string& name);

// The members, names without ".npy", in the archive's order. Throws Error for compressed members, wrong checksums.
std::vector<std::pair<std::string, NpyArray>> parse_npz(Bytes bytes, const std::string& name);

// Row-major data of numel * item_size(dtype) bytes; numpy has no bf16, f8 or f4: those are an Error.
void write_npy(const fs::path& path, DType dtype, const Dims& shape, const void* data);

// Keeps the map alive for its arrays: one without a name for .npy, all members for .npz (by content, not extension).
class NpyFile {
 public:
  explicit NpyFile(const fs::path& path);
  const std::vector<std::pair<std::string, NpyArray>>& arrays() const { return arrays_; }
  const NpyArray& at(const std::string& name) const;  // throws Error naming the file, the array and the nearest name

 private:
  MappedFile mapped_;
  std::vector<std::pair<std::string, NpyArray>> arrays_;
};

}  // namespace tally
