#include "tally/core/dtype.h"

#include <array>

#include "tally/base/error.h"

namespace tally {

namespace {
constexpr std::array<const char*, kDTypes> kNames = {"f64", "f32", "bf16", "i64", "i32", "u16", "u8"};
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
  fail("unknown device '{}'; this build has cpu and meta", name);
}

std::string str(const Dims& d) {
  std::string s = "(";
  for (int i = 0; i < d.rank; ++i) s += (i ? ", " : "") + std::to_string(d[i]);
  return s + (d.rank == 1 ? ",)" : ")");
}

int normalize_axis(int axis, int rank, const char* op) {
  if (axis < -rank || axis >= rank) fail("{}: axis {} is outside a tensor of {} axes", op, axis, rank);
  return axis < 0 ? axis + rank : axis;
}

}  // namespace tally
