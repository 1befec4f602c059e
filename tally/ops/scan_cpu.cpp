// Running sums and products on the CPU: a row along the axis is one chain in f64 (i64 for integers); where the axis is
// not the last one, neighbouring columns run side by side.
#include "tally/ops/order_keys.h"
#include "tally/ops/row_loops.h"
#include "tally/ops/scan_kernels.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int64_t kColumns = 64;

template <class T>
TALLY_INLINE double number_at(const T* p) {
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, float>) {
    return *p;
  } else {
    return to_float(*p);
  }
}
TALLY_INLINE void write_at(double* p, double x) { *p = x; }
TALLY_INLINE void write_at(float* p, double x) { *p = static_cast<float>(x); }
TALLY_INLINE void write_at(bf16* p, double x) { *p = to_bf16(static_cast<float>(x)); }
TALLY_INLINE void write_at(f16* p, double x) { *p = to_f16(static_cast<float>(x)); }

// What numbers of type T are joined in and written as.
template <class T, bool kWhole = std::is_integral_v<T>>
struct Sums {
  using Number = double;
  using Out = T;
  TALLY_INLINE static double load(const T* p) { return number_at(p); }
  TALLY_INLINE static void store(T* p, double x) { write_at(p, x); }
};
template <class T>
struct Sums<T, true> {
  using Number = uint64_t;
  using Out = int64_t;
  TALLY_INLINE static uint64_t load(const T* p) { return static_cast<uint64_t>(static_cast<int64_t>(*p)); }
  TALLY_INLINE static void store(int64_t* p, uint64_t x) { *p = static_cast<int64_t>(x); }
};

// m columns (steps apart) of n elements along the axis.
template <class T>
void run(const T* x, typename Sums<T>::Out* out, int64_t n, int64_t along_x, int64_t along_out, int64_t m,
         int64_t step_x, int64_t step_out, bool product) {
  using S = Sums<T>;
  if (m == 1 && !product) {
    typename S::Number sum = 0;
    for (int64_t r = 0; r < n; ++r) {
      sum += S::load(x + r * along_x);
      S::store(out + r * along_out, sum);
    }
    return;
  }
  typename S::Number value[kColumns];
  for (int64_t i = 0; i < m; ++i) value[i] = product;
  for (int64_t r = 0; r < n; ++r, x += along_x, out += along_out) {
    const auto join = [&](int64_t i, int64_t from, int64_t to) __attribute__((always_inline)) {
      const auto v = S::load(x + from);
      value[i] = product ? value[i] * v : value[i] + v;
      S::store(out + to, value[i]);
    };
    if (step_x == 1 && step_out == 1) {
      for (int64_t i = 0; i < m; ++i) join(i, i, i);
    } else {
      for (int64_t i = 0; i < m; ++i) join(i, i * step_x, i * step_out);
    }
  }
}

// kTogether rows side by side, each a chain of its own that would wait for its last addition alone; a cache line of a
// row at a time, because lines of different rows may share a place in the cache.
constexpr int kTogether = 8;
constexpr int64_t kLine = 16;
template <class T>
void run_rows(const T* const (&x)[kTogether], typename Sums<T>::Out* const (&out)[kTogether], int64_t n,
              int64_t along_x, int64_t along_out) {
  using S = Sums<T>;
  typename S::Number sum[kTogether] = {}, value[kLine][kTogether];
  for (int64_t r = 0; r < n; r += kLine) {
    const int64_t m = n - r < kLine ? n - r : kLine;
    for (int i = 0; i < kTogether; ++i)
      for (int64_t j = 0; j < m; ++j) value[j][i] = S::load(x[i] + (r + j) * along_x);
    for (int64_t j = 0; j < m; ++j)
      for (int i = 0; i < kTogether; ++i) value[j][i] = sum[i] += value[j][i];
    for (int i = 0; i < kTogether; ++i)
      for (int64_t j = 0; j < m; ++j) S::store(out[i] + (r + j) * along_out, value[j][i]);
  }
}

// The same of f32 rows that lie so, n a multiple of a line: squares of four rows and four elements are turned, so that
// every vector holds an element of each row.
using Four = float __attribute__((vector_size(16)));
using Two = float __attribute__((vector_size(8)));
using TwoD = double __attribute__((vector_size(16)));
TALLY_INLINE void turn_square(Four (&x)[4]) {
  const Four low0 = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5),
             low1 = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
  const Four high0 = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
  const Four high1 = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
  x[0] = __builtin_shufflevector(low0, low1, 0, 1, 4, 5), x[1] = __builtin_shufflevector(low0, low1, 2, 3, 6, 7);
  x[2] = __builtin_shufflevector(high0, high1, 0, 1, 4, 5), x[3] = __builtin_shufflevector(high0, high1, 2, 3, 6, 7);
}
void run_rows_f32(const float* const (&x)[kTogether], float* const (&out)[kTogether], int64_t n) {
  TwoD sum[kTogether / 4][2] = {};
  alignas(64) float line[4][kLine];
  for (int64_t r = 0; r < n; r += kLine)
    for (int g = 0; g < kTogether / 4; ++g) {
      for (int i = 0; i < 4; ++i) __builtin_memcpy(line[i], x[4 * g + i] + r, sizeof line[i]);
      for (int64_t j = 0; j < kLine; j += 4) {
        Four square[4];
        for (int i = 0; i < 4; ++i) __builtin_memcpy(&square[i], line[i] + j, sizeof(Four));
        turn_square(square);
        for (Four& v : square) {
          sum[g][0] += __builtin_convertvector(__builtin_shufflevector(v, v, 0, 1), TwoD);
          sum[g][1] += __builtin_convertvector(__builtin_shufflevector(v, v, 2, 3), TwoD);
          v = __builtin_shufflevector(__builtin_convertvector(sum[g][0], Two), __builtin_convertvector(sum[g][1], Two),
                                      0, 1, 2, 3);
        }
        turn_square(square);
        for (int i = 0; i < 4; ++i) __builtin_memcpy(line[i] + j, &square[i], sizeof(Four));
      }
      for (int i = 0; i < 4; ++i) __builtin_memcpy(out[4 * g + i] + r, line[i], sizeof line[i]);
    }
}

// f(column offsets in each view, m) over pieces of up to kColumns columns of the last axis; of rows when that is
// scanned.
template <int N, class F>
void over_lanes(const View (&views)[N], int axis, const F& f) {
  const Dims& size = views[0].size;
  const int last = size.rank - 1;
  const bool own = axis == last;
  View lane[N];  // without movement along the axis
  for (int k = 0; k < N; ++k) lane[k] = views[k], lane[k].size.v[axis] = 1;
  const int64_t width = own ? 1 : size.v[last], chunks = (width + kColumns - 1) / kColumns;
  const int64_t work = size.v[axis] * (own ? 1 : kColumns);
  parallel_for(rows_of(lane[0]) * chunks, row_grain(work), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit / chunks, start = unit % chunks * kColumns;
      int64_t at[N];
      for (int k = 0; k < N; ++k) at[k] = row_offset(lane[k], row) + (own ? 0 : start * views[k].stride.v[last]);
      f(at, width - start < kColumns ? width - start : kColumns);
    }
  });
}

// A column of the gradient of a running product, from its end.
template <class T>
void product_gradient(const CumprodBackwardArgs& a, const int64_t (&at)[4], int64_t column) {
  const int last = a.dx.size.rank - 1;
  const auto place = [&](const View& v, int64_t base, int64_t r) {
    return v.ptr<T>() + base + (a.axis == last ? 0 : column * v.stride.v[last]) + r * v.stride.v[a.axis];
  };
  double s = 0, next = 0;
  for (int64_t r = a.dx.size.v[a.axis] - 1; r >= 0; --r) {
    s = number_at(place(a.grad, at[1], r)) + next * s;
    next = number_at(place(a.x, at[2], r));
    const double before = r > 0 ? number_at(place(a.y, at[3], r - 1)) : 1.0;
    write_at(place(a.dx, at[0], r), before * s);
  }
}

// Sums along the last axis, from its element `first` on.
template <class T>
void sum_rows(const ScanArgs& a, int64_t first, int64_t sign) {
  using Out = typename Sums<T>::Out;
  const int64_t n = a.x.size.v[a.axis], rows = rows_of(a.x);
  const int64_t along_x = a.x.stride.v[a.axis], along_out = a.out.stride.v[a.axis];
  parallel_for((rows + kTogether - 1) / kTogether, row_grain(n * kTogether), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * kTogether; row < end * kTogether && row < rows; row += kTogether) {
      const T* x[kTogether];
      Out* out[kTogether];
      const int64_t count = rows - row < kTogether ? rows - row : kTogether;
      for (int64_t i = 0; i < count; ++i) {
        x[i] = a.x.ptr<T>() + row_offset(a.x, row + i) + first * along_x;
        out[i] = a.out.ptr<Out>() + row_offset(a.out, row + i) + first * along_out;
      }
      if constexpr (std::is_same_v<T, float>) {
        if (count == kTogether && n % kLine == 0 && sign * along_x == 1 && sign * along_out == 1) {
          run_rows_f32(x, out, n);
          continue;
        }
      }
      if (count == kTogether) {
        run_rows<T>(x, out, n, sign * along_x, sign * along_out);
      } else {
        for (int64_t i = 0; i < count; ++i) run<T>(x[i], out[i], n, sign * along_x, sign * along_out, 1, 1, 1, false);
      }
    }
  });
}

}  // namespace

void scan(const ScanArgs& a) {
  const int64_t n = a.x.size.v[a.axis];
  if (a.x.numel() == 0) return;
  const int last = a.x.size.rank - 1;
  const View views[2] = {a.x, a.out};
  const int64_t first = a.reverse ? n - 1 : 0, sign = a.reverse ? -1 : 1;
  const int64_t along_x = a.x.stride.v[a.axis], along_out = a.out.stride.v[a.axis];
  with_ordered(a.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (a.axis == last && a.op == ScanOp::kSum) return sum_rows<T>(a, first, sign);
    over_lanes(views, a.axis, [&](const int64_t* at, int64_t m) {
      run<T>(a.x.ptr<T>() + at[0] + first * along_x, a.out.ptr<typename Sums<T>::Out>() + at[1] + first * along_out, n,
             sign * along_x, sign * along_out, m, a.x.stride.v[last], a.out.stride.v[last], a.op == ScanOp::kProd);
    });
  });
}

void cumprod_backward(const CumprodBackwardArgs& a) {
  if (a.dx.numel() == 0) return;
  const View views[4] = {a.dx, a.grad, a.x, a.y};
  with_float(a.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    over_lanes(views, a.axis, [&](const int64_t(&at)[4], int64_t m) {
      for (int64_t column = 0; column < m; ++column) product_gradient<T>(a, at, column);
    });
  });
}

}  // namespace tally::TALLY_ISA
