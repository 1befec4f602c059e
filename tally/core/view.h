// What a kernel sees of a tensor: plain data, no ownership. With cost.h the only core header a kernel file includes.
// Every function is inlined by force, because kernel files are compiled once per instruction set.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tally/core/small_floats.h"

namespace tally {

// kF4E2M1x2: a byte is one element and holds two codes of four bits, the first one low. kF8E8M0: scales.
enum class DType : uint8_t {
  kF64,
  kF32,
  kBF16,
  kF16,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF4E2M1x2,
  kI64,
  kI32,
  kI16,
  kU16,
  kI8,
  kU8,
  kBool
};
constexpr int kDTypes = 15;

// `meta` has shapes and no data. target: the device a meta tensor stands for (ops choose as that device would).
enum class DeviceKind : uint8_t { kCpu, kCuda, kMeta };
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  DeviceKind target = DeviceKind::kCpu;  // equals kind unless kind is kMeta
  int16_t index = 0;
  friend constexpr bool operator==(const Device&, const Device&) = default;
};
constexpr Device kCpu{};
constexpr Device cuda_device(int index = 0) {
  return {DeviceKind::kCuda, DeviceKind::kCuda, static_cast<int16_t>(index)};
}
constexpr Device kMetaCpu{DeviceKind::kMeta, DeviceKind::kCpu, 0};
constexpr Device kMetaCuda{DeviceKind::kMeta, DeviceKind::kCuda, 0};
// The kind of device that a tensor is on or, on meta, stands for.
TALLY_INLINE constexpr DeviceKind target_of(Device d) { return d.kind == DeviceKind::kMeta ? d.target : d.kind; }

constexpr int kMaxRank = 8;

TALLY_INLINE constexpr int64_t item_size(DType t) {
  switch (t) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    default:
      return 1;
  }
}
// Floats of 16 bits: ops compute with them in f32.
TALLY_INLINE constexpr bool is_half(DType t) { return t == DType::kBF16 || t == DType::kF16; }
// What ops of floats take. The narrower floats are stored and converted (is_floating).
TALLY_INLINE constexpr bool is_float(DType t) { return t == DType::kF64 || t == DType::kF32 || is_half(t); }
TALLY_INLINE constexpr bool is_floating(DType t) { return t <= DType::kF4E2M1x2; }
TALLY_INLINE constexpr bool is_integer(DType t) { return t >= DType::kI64 && t <= DType::kU8; }

// Up to kMaxRank numbers: sizes, strides, axes. Plain data, so a backward may keep it.
struct Dims {
  int64_t v[kMaxRank] = {};
  int32_t rank = 0;

  constexpr Dims() = default;
  template <class... I>
  requires(sizeof...(I) > 0 && (std::is_integral_v<I> && ...)) constexpr Dims(I... sizes)
      : v{static_cast<int64_t>(sizes)...}, rank(sizeof...(I)) {
    static_assert(sizeof...(I) <= kMaxRank);
  }
  TALLY_INLINE constexpr int64_t operator[](int i) const { return v[i]; }
  TALLY_INLINE constexpr int64_t& operator[](int i) { return v[i]; }
  TALLY_INLINE constexpr int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= v[i];
    return n;
  }
  friend constexpr bool operator==(const Dims& a, const Dims& b) {
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; ++i)
      if (a.v[i] != b.v[i]) return false;
    return true;
  }
};

// Pointer to the first element (offset included; null on meta), sizes and strides in elements.
struct View {
  void* data = nullptr;
  Dims size;
  Dims stride;
  DType dtype = DType::kF32;
  Device device;

  TALLY_INLINE int rank() const { return size.rank; }
  TALLY_INLINE int64_t numel() const { return size.numel(); }
  // Distinct bytes: an axis of stride 0 (a broadcast) counts once.
  TALLY_INLINE int64_t bytes() const {
    int64_t n = item_size(dtype);
    for (int i = 0; i < size.rank; ++i)
      if (stride.v[i] != 0 || size.v[i] == 0) n *= size.v[i];
    return n;
  }
  TALLY_INLINE bool contiguous() const {
    int64_t expected = 1;
    for (int i = size.rank - 1; i >= 0; --i) {
      if (size.v[i] != 1 && stride.v[i] != expected) return false;
      expected *= size.v[i];
    }
    return true;
  }
  template <class T>
  TALLY_INLINE T* ptr() const {
    return static_cast<T*>(data);
  }
};
static_assert(std::is_trivially_copyable_v<View>);

}  // namespace tally
