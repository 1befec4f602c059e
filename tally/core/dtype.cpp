#include "tally/core/dtype.h"

#include <array>
#include <charconv>

#include "tally/base/error.h"
#include "tally/core/device.h"

namespace tally {

namespace detail {
[[noreturn]] void wrong_dtype(const char* op, int dtype);  // of kernels; ops/loops.h and ops/device.cuh declare it
}

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

FloatInfo finfo(DType t) {
  switch (t) {  // max, min, tiny, eps, smallest subnormal
    case DType::kF64:
      return {0x1.fffffffffffffp1023, -0x1.fffffffffffffp1023, 0x1p-1022, 0x1p-52, 0x1p-1074, 64};
    case DType::kF32:
      return {0x1.fffffep127, -0x1.fffffep127, 0x1p-126, 0x1p-23, 0x1p-149, 32};
    case DType::kBF16:
      return {0x1.fep127, -0x1.fep127, 0x1p-126, 0x1p-7, 0x1p-133, 16};
    case DType::kF16:
      return {65504, -65504, 0x1p-14, 0x1p-10, 0x1p-24, 16};
    case DType::kF8E4M3:
      return {448, -448, 0x1p-6, 0x1p-3, 0x1p-9, 8};
    case DType::kF8E5M2:
      return {57344, -57344, 0x1p-14, 0x1p-2, 0x1p-16, 8};
    case DType::kF8E8M0:  // powers of two only: no sign, no zero, nothing subnormal
      return {0x1p127, 0x1p-127, 0x1p-127, 1, 0x1p-127, 8};
    case DType::kF4E2M1x2:
      return {6, -6, 1, 0.5, 0.5, 4};
    default:
      fail_type("finfo: {} is not a floating dtype; use iinfo", name_of(t));
  }
}

IntInfo iinfo(DType t) {
  if (!is_integer(t)) fail_type("iinfo: {} is not an integer dtype{}", name_of(t), is_floating(t) ? "; use finfo" : "");
  const int bits = static_cast<int>(8 * item_size(t));
  const bool has_sign = t != DType::kU16 && t != DType::kU8;
  const int64_t max = static_cast<int64_t>((uint64_t{1} << (has_sign ? bits - 1 : bits)) - 1);
  return {max, has_sign ? -max - 1 : 0, bits};
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
  if (rank == 0 && (axis == 0 || axis == -1))
    fail_index("{}: Dimension specified as {} but tensor has no dimensions", op, axis);
  const int n = rank > 0 ? rank : 1;  // PyTorch's texts
  if (axis < -rank || axis >= rank)
    fail_index("{}: Dimension out of range (expected to be in range of [{}, {}], but got {}): a tensor of {} axes", op,
               -n, n - 1, axis, rank);
  return axis < 0 ? axis + rank : axis;
}

namespace detail {
void wrong_dtype(const char* op, int dtype) {
  fail_type("{}: has no {} kernel on this device; convert with to()", op, name_of(static_cast<DType>(dtype)));
}
}  // namespace detail

}  // namespace tally
