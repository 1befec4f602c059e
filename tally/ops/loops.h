// Loops of CPU kernels over views: dtype selection and rows. A row is the innermost axis (or the whole tensor when all
// views are contiguous); the work is cut by a fixed number of elements, never by the thread count.
#pragma once

#include "tally/base/parallel.h"
#include "tally/ops/simd.h"

namespace tally::detail {
[[noreturn]] void wrong_dtype(const char* op, int dtype);  // core/dtype.cpp
}

namespace tally::TALLY_ISA {

constexpr int64_t kGrainElements = 16384;  // below this a second thread costs more than it saves

TALLY_INLINE double load_one(const double* p) { return *p; }
TALLY_INLINE void store_one(double* p, double x) { *p = x; }

// What a dtype is computed in.
template <class T>
struct ComputeOf {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

// f(T{}) for T = float, bf16 or double. Other dtypes are refused before a kernel is launched.
template <class F>
TALLY_INLINE void with_float(DType t, const F& f) {
  if (t == DType::kF32) return f(float{});
  if (t == DType::kBF16) return f(bf16{});
  if (t == DType::kF64) return f(double{});
  tally::detail::wrong_dtype("a kernel", static_cast<int>(t));
}
// The same and f16.
template <class F>
TALLY_INLINE void with_any_float(DType t, const F& f) {
  if (t == DType::kF16) return f(f16{});
  with_float(t, f);
}

// One element of an f32, bf16 or f16 view.
[[maybe_unused]] static float float_at(const View& v, int64_t at) {
  if (v.dtype == DType::kF32) return v.ptr<float>()[at];
  return v.dtype == DType::kBF16 ? to_float(v.ptr<bf16>()[at]) : to_float(v.ptr<f16>()[at]);
}
[[maybe_unused]] static void put_float(const View& v, int64_t at, float x) {
  if (v.dtype == DType::kF32) {
    v.ptr<float>()[at] = x;
  } else if (v.dtype == DType::kBF16) {
    v.ptr<bf16>()[at] = to_bf16(x);
  } else {
    v.ptr<f16>()[at] = to_f16(x);
  }
}

// f(offset[N], n, step[N]) for every row of the common index space of N views of equal size. f stands in one place
// only: it is inlined, and a kernel's compile time is mostly its copies.
template <int N, class F>
TALLY_INLINE void for_rows(const View (&views)[N], const F& f) {
  const Dims& size = views[0].size;
  const int64_t numel = size.numel();
  if (numel == 0) return;
  bool flat = true;
  for (const View& v : views) flat = flat && v.contiguous();
  const int last = size.rank - 1;  // rank 0 is contiguous
  const int64_t length = flat ? kGrainElements : size.v[last];
  const int64_t rows = (numel + length - 1) / length;
  parallel_for(rows, flat ? 1 : (kGrainElements + length - 1) / length, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t offset[N], step[N], n = length;
      if (flat) {
        n = numel - row * length < length ? numel - row * length : length;
        for (int k = 0; k < N; ++k) offset[k] = row * length, step[k] = 1;
      } else {
        for (int k = 0; k < N; ++k) offset[k] = 0, step[k] = views[k].stride.v[last];
        int64_t rest = row;
        for (int axis = last - 1; axis >= 0; --axis) {
          const int64_t i = rest % size.v[axis];
          rest /= size.v[axis];
          for (int k = 0; k < N; ++k) offset[k] += i * views[k].stride.v[axis];
        }
      }
      f(offset, n, step);
    }
  });
}

constexpr int64_t kBlock = 512;  // elements; a few blocks of f32 stay in the first cache

// Zeros behind n numbers up to the next whole vector.
[[maybe_unused]] static const float* pad_block(float* buffer, int64_t n) {
  for (int64_t i = n; i % kLanes != 0; ++i) buffer[i] = 0;
  return buffer;
}

// n elements of an f32, bf16 or f16 view as f32, padded with zeros to whole vectors: in place where they already lie
// so, else in `buffer`. Not a template, so that an op's formula is compiled once and not once a dtype and stride.
[[maybe_unused]] static const float* block_in(const View& v, int64_t at, int64_t step, int64_t n, float* buffer) {
  if (v.dtype == DType::kF32) {
    const float* p = v.ptr<float>() + at;
    if (step == 1 && n % kLanes == 0) return p;
    if (step == 0) {
      const float x = *p;
      for (int64_t i = 0; i < n; ++i) buffer[i] = x;
      return pad_block(buffer, n);
    }
    for (int64_t i = 0; i < n; ++i) buffer[i] = p[i * step];
  } else if (v.dtype == DType::kF16) {
    const f16* p = v.ptr<f16>() + at;
    int64_t i = 0;
    if (step == 1)
      for (; i + kLanes <= n; i += kLanes) store(buffer + i, load(p + i));
    for (; i < n; ++i) buffer[i] = to_float(p[i * step]);
  } else {
    const bf16* p = v.ptr<bf16>() + at;
    if (step == 1) {
      for (int64_t i = 0; i < n; ++i) buffer[i] = to_float(p[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) buffer[i] = to_float(p[i * step]);
    }
  }
  return pad_block(buffer, n);
}

// Where a block of results is to be computed: the output itself or the buffer, which block_out() then stores.
[[maybe_unused]] static float* block_place(const View& v, int64_t at, int64_t step, int64_t n, float* buffer) {
  return v.dtype == DType::kF32 && step == 1 && n % kLanes == 0 ? v.ptr<float>() + at : buffer;
}
[[maybe_unused]] static void block_out(const View& v, int64_t at, int64_t step, int64_t n, const float* place,
                                       const float* buffer) {
  if (place != buffer) return;
  if (v.dtype == DType::kF32) {
    for (int64_t i = 0; i < n; ++i) v.ptr<float>()[at + i * step] = buffer[i];
  } else if (v.dtype == DType::kF16) {
    f16* p = v.ptr<f16>() + at;
    int64_t i = 0;
    if (step == 1)
      for (; i + kLanes <= n; i += kLanes) store(p + i, load(buffer + i));
    for (; i < n; ++i) p[i * step] = to_f16(buffer[i]);
  } else if (step == 1) {
    for (int64_t i = 0; i < n; ++i) v.ptr<bf16>()[at + i] = to_bf16(buffer[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) v.ptr<bf16>()[at + i * step] = to_bf16(buffer[i]);
  }
}

// The same of an f64 view.
[[maybe_unused]] static const double* block_in(const View& v, int64_t at, int64_t step, int64_t n, double* buffer) {
  const double* p = v.ptr<double>() + at;
  if (step == 1) return p;
  for (int64_t i = 0; i < n; ++i) buffer[i] = p[i * step];
  return buffer;
}
[[maybe_unused]] static double* block_place(const View& v, int64_t at, int64_t step, int64_t, double* buffer) {
  return step == 1 ? v.ptr<double>() + at : buffer;
}
[[maybe_unused]] static void block_out(const View& v, int64_t at, int64_t step, int64_t n, const double* place,
                                       const double* buffer) {
  if (place != buffer) return;
  for (int64_t i = 0; i < n; ++i) v.ptr<double>()[at + i * step] = buffer[i];
}

// What a formula makes of a block of n numbers: out[k][i] from in[k][i]; context is the formula's own.
template <class T>
using BlockFormula = void (*)(const void* context, const T* const* in, T* const* out, int64_t n);

// Rows and blocks of map_elements(), apart from the formulas: one copy a count of views, not one an op.
template <int kOut, int kIn, class T>
__attribute__((noinline)) void map_blocks(const View (&views)[kOut + kIn], BlockFormula<T> formula,
                                          const void* context) {
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    alignas(64) T buffer[kOut + kIn][kBlock];
    for (int64_t start = 0; start < n; start += kBlock) {
      const int64_t m = n - start < kBlock ? n - start : kBlock;
      const T* x[kIn];
      T* y[kOut];
      for (int k = 0; k < kIn; ++k)
        x[k] = block_in(views[kOut + k], at[kOut + k] + start * step[kOut + k], step[kOut + k], m, buffer[kOut + k]);
      for (int k = 0; k < kOut; ++k) y[k] = block_place(views[k], at[k] + start * step[k], step[k], m, buffer[k]);
      formula(context, x, y, m);
      for (int k = 0; k < kOut; ++k) block_out(views[k], at[k] + start * step[k], step[k], m, y[k], buffer[k]);
    }
  });
}

// f(in[], out[]) on every element, numbers being Vec for narrower floats and double for f64: views are the outputs,
// then the inputs. f reads in[k] and writes out[k]. An output may be an input (one and the same view).
template <int kOut, int kIn, class F>
TALLY_INLINE void map_elements(const View (&views)[kOut + kIn], const F& f) {
  if (views[0].dtype == DType::kF64) {
    return map_blocks<kOut, kIn, double>(
        views,
        [](const void* context, const double* const* x, double* const* y, int64_t n) {
          for (int64_t i = 0; i < n; ++i) {
            double in[kIn], out[kOut];
            for (int k = 0; k < kIn; ++k) in[k] = x[k][i];
            (*static_cast<const F*>(context))(in, out);
            for (int k = 0; k < kOut; ++k) y[k][i] = out[k];
          }
        },
        &f);
  }
  map_blocks<kOut, kIn, float>(
      views,
      [](const void* context, const float* const* x, float* const* y, int64_t n) {
        const F formula = *static_cast<const F*>(context);  // a copy: stores to y cannot change it
        for (int64_t i = 0; i < n; i += kLanes) {
          Vec in[kIn], out[kOut];
          for (int k = 0; k < kIn; ++k) in[k] = load(x[k] + i);
          formula(in, out);
          for (int k = 0; k < kOut; ++k) store(y[k] + i, out[k]);
        }
      },
      &f);
}

}  // namespace tally::TALLY_ISA
