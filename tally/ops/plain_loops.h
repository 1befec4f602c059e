// Blocks of numbers of any dtype for kernels that are compiled once (kernels_plain_cpu.cpp): read as i64, f32 or f64,
// whatever the view holds, so that an op has one loop a compute type and not one a dtype or a pair of dtypes.
#pragma once

#include "tally/core/number.h"
#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

// What stands at p[i * step] as C. Integers go straight to i64; the rest by way of read_number's rules.
template <class C, class T>
TALLY_INLINE void read_all(const T* p, int64_t step, int64_t n, C* out) {
  if (step == 1) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(p[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(p[i * step]);
  }
}

template <class C>
__attribute__((noinline)) void read_block(const View& v, int64_t at, int64_t step, int64_t n, C* out) {
  switch (v.dtype) {
    case DType::kF64:
      return read_all(v.ptr<double>() + at, step, n, out);
    case DType::kF32:
      return read_all(v.ptr<float>() + at, step, n, out);
    case DType::kI64:
      return read_all(v.ptr<int64_t>() + at, step, n, out);
    case DType::kI32:
      return read_all(v.ptr<int32_t>() + at, step, n, out);
    case DType::kI16:
      return read_all(v.ptr<int16_t>() + at, step, n, out);
    case DType::kU16:
      return read_all(v.ptr<uint16_t>() + at, step, n, out);
    case DType::kI8:
      return read_all(v.ptr<int8_t>() + at, step, n, out);
    case DType::kU8:
    case DType::kBool:
      return read_all(v.ptr<uint8_t>() + at, step, n, out);
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(to_float(v.ptr<bf16>()[at + i * step]));
      return;
    default:
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(read_number(v.data, v.dtype, at + i * step));
  }
}

// The same values in i64 as numbers of an integer dtype (bool: 0 or 1), which wrap around.
[[maybe_unused]] static void wrap_block(DType t, int64_t* x, int64_t n) {
  switch (t) {
    case DType::kI32:
      for (int64_t i = 0; i < n; ++i) x[i] = static_cast<int32_t>(x[i]);
      return;
    case DType::kI16:
      for (int64_t i = 0; i < n; ++i) x[i] = static_cast<int16_t>(x[i]);
      return;
    case DType::kU16:
      for (int64_t i = 0; i < n; ++i) x[i] = static_cast<uint16_t>(x[i]);
      return;
    case DType::kI8:
      for (int64_t i = 0; i < n; ++i) x[i] = static_cast<int8_t>(x[i]);
      return;
    case DType::kU8:
      for (int64_t i = 0; i < n; ++i) x[i] = static_cast<uint8_t>(x[i]);
      return;
    case DType::kBool:
      for (int64_t i = 0; i < n; ++i) x[i] = x[i] != 0;
      return;
    default:
      return;
  }
}

// i64 into a view of an integer dtype or bool: the low bits (bool: whether it is not 0).
template <class T>
TALLY_INLINE void write_all(T* p, int64_t step, int64_t n, const int64_t* x) {
  if (step == 1) {
    for (int64_t i = 0; i < n; ++i) p[i] = static_cast<T>(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) p[i * step] = static_cast<T>(x[i]);
  }
}
[[maybe_unused]] __attribute__((noinline)) static void write_block(const View& v, int64_t at, int64_t step, int64_t n,
                                                                   int64_t* x) {
  if (v.dtype == DType::kBool) wrap_block(v.dtype, x, n);
  switch (item_size(v.dtype)) {
    case 8:
      return write_all(v.ptr<int64_t>() + at, step, n, x);
    case 4:
      return write_all(v.ptr<int32_t>() + at, step, n, x);
    case 2:
      return write_all(v.ptr<int16_t>() + at, step, n, x);
    default:
      return write_all(v.ptr<int8_t>() + at, step, n, x);
  }
}

// A block as C numbers of `dtype`: in place where it lies so, else in `buffer`.
template <class C>
const C* numbers_in(const View& v, DType own, DType dtype, int64_t at, int64_t step, int64_t n, C* buffer) {
  if (v.dtype == own && step == 1) {
    if (dtype == own) return v.ptr<C>() + at;
  }
  read_block(v, at, step, n, buffer);
  if constexpr (std::is_same_v<C, int64_t>)
    if (v.dtype != dtype) wrap_block(dtype, buffer, n);
  return buffer;
}

}  // namespace tally::TALLY_ISA
