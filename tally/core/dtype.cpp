#include "tally/core/dtype.h"

#include <array>
#include <charconv>

#include "tally/base/error.h"
#include "tally/core/device.h"

namespace tally {

namespace {
constexpr std::array<const char*, kDTypes> kNames = {"f64",    "f32",    "bf16",     "f16", "f8e4m3",
                                                     "f8e5m2", "f8e8m0", "f4e2m1x2", "i64", "i32",
                                                     "i16",    "u16",    "i8",       "u8",  "bool"};
}

const char* name_of(DType t) { return kNames[static_cast<size_t>(t)]; }

DType dtype_from_name(std::string_view name) {
  std::string known;
  for (int i = 0; i < kDTypes; ++i) {
    if (name == kNames[i]) return static_cast<DType>(i);
    known += (i ? ", " : "") + std::string(kNames[i]);
  }
  fail("unknown dtype '{}'; use one of {}", name, known);
}

std::string name_of(const Device& d) {
  switch (d.kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kCuda:
      return fmt::format("cuda:{}", d.index);
    default:
      return d.target == DeviceKind::kCuda ? "meta:cuda" : "meta:cpu";
  }
}

Device device_from_name(std::string_view name) {
  if (name == "cpu") return kCpu;
  if (name == "meta" || name == "meta:cpu") return kMetaCpu;
  if (name == "meta:cuda") return kMetaCuda;
  if (name == "cuda") return cuda_device();
  if (name.starts_with("cuda:")) {
    const std::string_view digits = name.substr(5);
    int index = -1;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (status == std::errc() && end == digits.data() + digits.size() && index >= 0 && index < 64)
      return cuda_device(index);
  }
  fail("unknown device '{}'; devices are cpu, cuda, cuda:N (N from 0 to 63), meta and meta:cuda", name);
}

std::string str(const Dims& d) {
  std::string s = "(";
  for (int i = 0; i < d.rank; ++i) s += (i ? ", " : "") + std::to_string(d[i]);
  return s + (d.rank == 1 ? ",)" : ")");
}

int normalize_axis(int axis, int rank, const char* op) {
  if (axis < -rank || axis >= rank) fail_index("{}: axis {} is outside a tensor of {} axes", op, axis, rank);
  return axis < 0 ? axis + rank : axis;
}

}  // namespace tally
