// Loops of CPU kernels over views: dtype selection and rows. A row is the innermost axis (or the whole tensor when all
// views are contiguous); the work is cut by a fixed number of elements, never by the thread count.
#pragma once

#include <type_traits>

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
// only: it is inlined, and a kernel's compile time is mostly its copies. `weight`: the numbers an element stands for.
template <int N, class F>
TALLY_INLINE void for_rows(const View (&views)[N], const F& f, int64_t weight = 1) {
  const Dims& size = views[0].size;
  const int64_t numel = size.numel();
  if (numel == 0) return;
  bool flat = true;
  for (const View& v : views) flat = flat && v.contiguous();
  const int last = size.rank - 1;  // rank 0 is contiguous
  const int64_t grain = kGrainElements / weight, length = flat ? grain : size.v[last];
  const int64_t rows = (numel + length - 1) / length;
  parallel_for(rows, flat ? 1 : (grain + length - 1) / length, [&](int64_t begin, int64_t end) {
    int64_t offset[N], step[N], index[kMaxRank];
    for (int k = 0; k < N; ++k) offset[k] = flat ? begin * length : 0, step[k] = flat ? 1 : views[k].stride.v[last];
    int64_t rest = begin;
    for (int axis = last - 1; axis >= 0 && !flat; --axis) {
      index[axis] = rest % size.v[axis];
      rest /= size.v[axis];
      for (int k = 0; k < N; ++k) offset[k] += index[axis] * views[k].stride.v[axis];
    }
    for (int64_t row = begin;;) {
      f(offset, flat && numel - row * length < length ? numel - row * length : length, step);
      if (++row == end) break;
      for (int k = 0; k < N && flat; ++k) offset[k] += length;
      for (int axis = last - 1; axis >= 0 && !flat; --axis) {  // the next row: a counter with a digit an axis
        for (int k = 0; k < N; ++k) offset[k] += views[k].stride.v[axis];
        if (++index[axis] < size.v[axis]) break;
        for (int k = 0; k < N; ++k) offset[k] -= size.v[axis] * views[k].stride.v[axis];
        index[axis] = 0;
      }
    }
  });
}

// f(offset[N], rows, columns) for tiles of at most `high` rows along `axis` and `wide` columns along the last axis.
template <int N, class F>
TALLY_INLINE void for_tiles(const View (&views)[N], int axis, int64_t high, int64_t wide, const F& f) {
  const Dims& size = views[0].size;
  const int last = size.rank - 1;
  if (size.numel() == 0) return;
  const int64_t down = (size.v[axis] + high - 1) / high, across = (size.v[last] + wide - 1) / wide;
  const int64_t planes = size.numel() / size.v[axis] / size.v[last];
  parallel_for(planes * down * across, (kGrainElements + high * wide - 1) / (high * wide),
               [&](int64_t begin, int64_t end) {
                 for (int64_t tile = begin; tile < end; ++tile) {
                   const int64_t row = tile % down * high, column = tile / down % across * wide;
                   int64_t offset[N], rest = tile / across / down;
                   for (int k = 0; k < N; ++k)
                     offset[k] = row * views[k].stride.v[axis] + column * views[k].stride.v[last];
                   for (int i = last - 1; i >= 0; --i) {
                     if (i == axis) continue;
                     for (int k = 0; k < N; ++k) offset[k] += rest % size.v[i] * views[k].stride.v[i];
                     rest /= size.v[i];
                   }
                   f(offset, size.v[axis] - row < high ? size.v[axis] - row : high,
                     size.v[last] - column < wide ? size.v[last] - column : wide);
                 }
               });
}

// The axis along which v is contiguous (or nearly so: a step leaves some elements in a line of memory) where it is not
// along the last one, both long enough for tiles; else -1.
[[maybe_unused]] static int turned_axis(const View& v) {
  constexpr int64_t kLeast = 8, kMostStep = 4;
  const int last = v.size.rank - 1;
  if (last < 1 || v.size.v[last] < kLeast) return -1;
  int64_t step = v.stride.v[last] <= kMostStep ? v.stride.v[last] : kMostStep + 1;
  int found = -1;
  for (int axis = 0; axis < last; ++axis)
    if (v.stride.v[axis] >= 1 && v.stride.v[axis] < step && v.size.v[axis] >= kLeast)
      step = v.stride.v[axis], found = axis;
  return found;
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
    if (step == 2) {  // a constant, for shuffles instead of loads one by one
      for (int64_t i = 0; i < n; ++i) buffer[i] = p[2 * i];
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

// `columns` columns, `step` apart, of `rows` numbers, `along` apart, as rows of kTileColumns numbers, padded to whole
// vectors.
constexpr int64_t kTileRows = 16, kTileColumns = 64;
template <class T>
__attribute__((noinline)) void turn_in(const View& v, int64_t at, int64_t along, int64_t step, int64_t rows,
                                       int64_t columns, T* to) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T))));  // `using` drops the attribute of a dependent type
  alignas(64) T buffer[4][kTileRows];
  const bool in_place = v.dtype == DType::kF32 && along == 1;
  const auto column = [&](int64_t j, T * to_fill) __attribute__((always_inline))->const T* {
    const int64_t from = at + j * step;
    __builtin_prefetch(v.ptr<char>() + (from + kTileRows * along) * item_size(v.dtype));  // for the tile below
    return in_place ? v.ptr<T>() + from : block_in(v, from, along, rows, to_fill);
  };
  int64_t j = 0;
  for (; j + 4 <= columns && rows >= kTileRows; j += 4) {
    const T* p[4];
    for (int c = 0; c < 4; ++c) p[c] = column(j + c, buffer[c]);
    for (int64_t i = 0; i < kTileRows; i += 4) {
      Four x[4];
      for (int c = 0; c < 4; ++c) __builtin_memcpy(&x[c], p[c] + i, sizeof(Four));
      const Four low0 = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5);
      const Four low1 = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
      const Four high0 = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
      const Four high1 = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
      const Four y[4] = {
          __builtin_shufflevector(low0, low1, 0, 1, 4, 5), __builtin_shufflevector(low0, low1, 2, 3, 6, 7),
          __builtin_shufflevector(high0, high1, 0, 1, 4, 5), __builtin_shufflevector(high0, high1, 2, 3, 6, 7)};
      for (int c = 0; c < 4; ++c) __builtin_memcpy(to + (i + c) * kTileColumns + j, &y[c], sizeof(Four));
    }
  }
  for (; j < columns; ++j) {
    const T* p = column(j, buffer[0]);
    for (int64_t i = 0; i < rows; ++i) to[i * kTileColumns + j] = p[i];
  }
  for (int64_t i = 0; i < rows; ++i)
    for (j = columns; j % kLanes != 0; ++j) to[i * kTileColumns + j] = 0;
}

// The same as map_blocks() by tiles: inputs that turned_axis() says so of are read along `axis`.
template <int kOut, int kIn, class T>
__attribute__((noinline)) void map_tiles(const View (&views)[kOut + kIn], int axis, BlockFormula<T> formula,
                                         const void* context) {
  const int last = views[0].size.rank - 1;
  bool turned[kIn];
  for (int k = 0; k < kIn; ++k) turned[k] = turned_axis(views[kOut + k]) == axis;
  for_tiles(views, axis, kTileRows, kTileColumns, [&](const int64_t* at, int64_t rows, int64_t columns) {
    alignas(64) T tile[kIn][kTileRows * kTileColumns], buffer[kOut + kIn][kTileColumns];
    for (int k = 0; k < kIn; ++k)
      if (turned[k])
        turn_in(views[kOut + k], at[kOut + k], views[kOut + k].stride.v[axis], views[kOut + k].stride.v[last], rows,
                columns, tile[k]);
    for (int64_t row = 0; row < rows; ++row) {
      const T* x[kIn];
      T* y[kOut];
      const auto from = [&](int k) { return at[k] + row * views[k].stride.v[axis]; };
      for (int k = 0; k < kIn; ++k) {
        const View& v = views[kOut + k];
        x[k] = turned[k] ? tile[k] + row * kTileColumns
                         : block_in(v, from(kOut + k), v.stride.v[last], columns, buffer[kOut + k]);
      }
      for (int k = 0; k < kOut; ++k) y[k] = block_place(views[k], from(k), views[k].stride.v[last], columns, buffer[k]);
      formula(context, x, y, columns);
      for (int k = 0; k < kOut; ++k) block_out(views[k], from(k), views[k].stride.v[last], columns, y[k], buffer[k]);
    }
  });
}

// block_in() and so on for `rows` rows of n elements, `along` apart, as one block of rows * n <= kBlock numbers. buffer
// holds kBlock + kLanes numbers: block_in() writes whole vectors, the next row's over what is too much.
template <class T>
TALLY_INLINE const T* rows_in(const View& v, int64_t at, int64_t rows, int64_t along, int64_t n, int64_t step,
                              T* buffer) {
  if (along == n * step) return block_in(v, at, step, rows * n, buffer);
  T* to = buffer;
  if (std::is_same_v<T, float> && v.dtype == DType::kF32 && (step == 0 || step == 1)) {
    const float* p = v.ptr<float>() + at;
    const int64_t whole = n / kLanes * kLanes, rest = n - whole;
    float* place = reinterpret_cast<float*>(to);
    const auto number = [&](int64_t row) { return broadcast(p[row * along]); };
    for (int64_t i = 0; i < whole; i += kLanes) {
      if (step == 0) {
        for (int64_t row = 0; row < rows; ++row) store(place + row * n + i, number(row));
      } else {
        for (int64_t row = 0; row < rows; ++row) store(place + row * n + i, load(p + row * along + i));
      }
    }
    for (int64_t row = 0; row < rows && rest > 0; ++row)
      store_partial(place + row * n + whole, step == 0 ? number(row) : load_partial(p + row * along + whole, rest),
                    rest);
  } else {
    for (int64_t row = 0; row < rows; ++row, to += n) {
      const T* p = block_in(v, at + row * along, step, n, to);
      for (int64_t i = 0; i < n && p != to; ++i) to[i] = p[i];
    }
  }
  for (int64_t i = rows * n; i % kLanes != 0; ++i) buffer[i] = 0;
  return buffer;
}

// Rows too short to be worth a call each: neighbouring ones together.
template <int kOut, int kIn, class T>
__attribute__((noinline)) void map_short_rows(const View (&views)[kOut + kIn], BlockFormula<T> formula,
                                              const void* context) {
  const int last = views[0].size.rank - 1;
  const int64_t n = views[0].size.v[last], most = kBlock / n;
  int64_t step[kOut + kIn];
  View lines[kOut + kIn];  // without the last axis: what for_rows() calls an element is a row
  for (int k = 0; k < kOut + kIn; ++k) {
    step[k] = views[k].stride.v[last];
    lines[k] = views[k], lines[k].size.rank = lines[k].stride.rank = last;
  }
  const auto group = [&](const int64_t* at, int64_t rows, const int64_t* along) {
    alignas(64) T buffer[kOut + kIn][kBlock + kLanes];
    const T* x[kIn];
    T* y[kOut];
    for (int k = kOut; k < kOut + kIn; ++k)
      x[k - kOut] = rows_in(views[k], at[k], rows, along[k], n, step[k], buffer[k]);
    for (int k = 0; k < kOut; ++k)
      y[k] = along[k] == n * step[k] ? block_place(views[k], at[k], step[k], rows * n, buffer[k]) : buffer[k];
    formula(context, x, y, rows * n);
    for (int k = 0; k < kOut; ++k) {
      if (along[k] == n * step[k]) {
        block_out(views[k], at[k], step[k], rows * n, y[k], buffer[k]);
        continue;
      }
      for (int64_t row = 0; row < rows; ++row)
        block_out(views[k], at[k] + row * along[k], step[k], n, buffer[k] + row * n, buffer[k] + row * n);
    }
  };
  for_rows(
      lines,
      [&](const int64_t* at, int64_t rows, const int64_t* along) {
        for (int64_t first = 0; first < rows; first += most) {
          int64_t from[kOut + kIn];
          for (int k = 0; k < kOut + kIn; ++k) from[k] = at[k] + first * along[k];
          group(from, rows - first < most ? rows - first : most, along);
        }
      },
      n);
}

// Rows and blocks of map_elements(), apart from the formulas: one copy a count of views, not one an op.
template <int kOut, int kIn, class T>
__attribute__((noinline)) void map_blocks(const View (&views)[kOut + kIn], BlockFormula<T> formula,
                                          const void* context) {
  if (views[0].size.numel() == 0) return;
  for (int k = kOut; k < kOut + kIn; ++k)
    if (const int axis = turned_axis(views[k]); axis >= 0)
      return map_tiles<kOut, kIn, T>(views, axis, formula, context);
  constexpr int64_t kShort = 128;
  bool flat = true;
  for (const View& v : views) flat = flat && v.contiguous();
  const int rank = views[0].size.rank;
  if (!flat && rank >= 2 && views[0].size.v[rank - 1] <= kShort && views[0].size.v[rank - 2] > 1)
    return map_short_rows<kOut, kIn, T>(views, formula, context);
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
