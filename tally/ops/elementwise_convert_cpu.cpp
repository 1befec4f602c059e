// Copies between any two dtypes on the CPU, in blocks: floats by way of f64, which holds every one of them, integers
// and bool by way of i64. One loop a dtype and direction; compiled once, for all instruction sets.
#include "tally/core/number.h"
#include "tally/ops/elementwise_kernels.h"
#include "tally/ops/loops.h"

namespace tally::isa_plain {

namespace {

// f(the dtype) with a constant, so that loops under it have one case of read_number() and number_bits() each.
template <int i = 0, class F>
TALLY_INLINE void with_dtype(DType t, const F& f) {
  if constexpr (i < kDTypes) {
    if (static_cast<int>(t) == i) return f(std::integral_constant<DType, static_cast<DType>(i)>{});
    with_dtype<i + 1>(t, f);
  }
}

void read_block(const View& v, int64_t at, int64_t step, int64_t n, double* numbers, int64_t* integers) {
  with_dtype(v.dtype, [&](auto tag) {
    constexpr DType kType = decltype(tag)::value;
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (is_floating(kType)) numbers[i] = read_number(v.data, kType, at + i * step);
      if constexpr (!is_floating(kType)) integers[i] = read_integer(v.data, kType, at + i * step);
    }
  });
}

template <class N>
void write_block(const View& v, int64_t at, int64_t step, int64_t n, const N* x, bool saturate) {
  with_dtype(v.dtype, [&](auto tag) {
    constexpr DType kType = decltype(tag)::value;
    for (int64_t i = 0; i < n; ++i) {
      uint64_t bits = 0;
      if constexpr (std::is_same_v<N, double>) bits = number_bits(kType, x[i], saturate);
      if constexpr (std::is_same_v<N, int64_t>) bits = integer_bits(kType, x[i], saturate);
      write_number_bits(v.data, item_size(kType), at + i * step, bits);
    }
  });
}

}  // namespace

void convert(const CopyArgs& a) {
  const View views[2] = {a.out, a.x};
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    double numbers[kBlock];
    int64_t integers[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = n - i < kBlock ? n - i : kBlock, from = at[1] + i * step[1], to = at[0] + i * step[0];
      read_block(a.x, from, step[1], m, numbers, integers);
      if (is_floating(a.x.dtype)) {
        write_block(a.out, to, step[0], m, numbers, a.saturate);
      } else {
        write_block(a.out, to, step[0], m, integers, a.saturate);
      }
    }
  });
}

}  // namespace tally::isa_plain
