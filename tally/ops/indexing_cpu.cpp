// Indices on the CPU: joined element by element; nonzero counts fixed pieces, then writes each where it begins.
#include "tally/ops/indexing_kernels.h"

#include "tally/base/parallel.h"
#include "tally/core/number.h"

namespace tally::TALLY_ISA {

namespace {

TALLY_INLINE int64_t id_at(const View& ids, int64_t at) {
  return ids.dtype == DType::kI64 ? ids.ptr<int64_t>()[at] : ids.ptr<int32_t>()[at];
}

void lower(int64_t* to, int64_t value) {
  int64_t there = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (value < there && !__atomic_compare_exchange_n(to, &there, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// f(p, begin, end) for every piece of n elements.
template <class F>
void over_pieces(int64_t n, const F& f) {
  constexpr int64_t kPiece = Nonzero::kPiece;
  parallel_for((n + kPiece - 1) / kPiece, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) f(p, p * kPiece, p * kPiece + kPiece < n ? p * kPiece + kPiece : n);
  });
}

TALLY_INLINE bool is_set(const View& x, int64_t at) {
  return item_size(x.dtype) == 1 && !is_floating(x.dtype) ? x.ptr<uint8_t>()[at] != 0
                                                          : read_number(x.data, x.dtype, at) != 0;
}

}  // namespace

void linear_index(const LinearIndexArgs& a) {
  const Dims& shape = a.out.size;
  over_pieces(a.out.numel(), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      int64_t sum = 0;
      bool good = true;
      for (int i = 0; i < a.count; ++i) {
        int64_t at = 0, rest = k;
        if (a.ids[i].size.rank == 1) {
          at = k * a.ids[i].stride.v[0];
        } else {
          for (int axis = shape.rank - 1; axis >= 0; --axis) {
            at += rest % shape.v[axis] * a.ids[i].stride.v[axis];
            rest /= shape.v[axis];
          }
        }
        const int64_t id = id_at(a.ids[i], at), n = a.size.v[i];
        good = good && id >= -n && id < n;
        sum += (id < 0 ? id + n : id) * a.step.v[i];
      }
      a.out.ptr<int64_t>()[k] = good ? sum : -1;
      if (!good) lower(a.bad.ptr<int64_t>(), k);
    }
  });
}

void nonzero_count(const NonzeroCountArgs& a) {
  over_pieces(a.x.numel(), [&](int64_t p, int64_t begin, int64_t end) {
    int64_t n = 0;
    if (item_size(a.x.dtype) == 1 && !is_floating(a.x.dtype)) {
      const uint8_t* x = a.x.ptr<uint8_t>();
      for (int64_t k = begin; k < end; ++k) n += x[k] != 0;
    } else {
      for (int64_t k = begin; k < end; ++k) n += is_set(a.x, k);
    }
    a.counts.ptr<int64_t>()[p] = n;
  });
}

void nonzero(const NonzeroArgs& a) {
  const Dims& size = a.x.size;
  over_pieces(a.x.numel(), [&](int64_t p, int64_t begin, int64_t end) {
    int64_t* out = a.out.ptr<int64_t>() + a.begins.ptr<int64_t>()[p] * size.rank;
    const bool bytes = item_size(a.x.dtype) == 1 && !is_floating(a.x.dtype);
    for (int64_t k = begin; k < end; ++k) {
      if (bytes && k + 8 <= end) {  // eight zeros at a time
        uint64_t eight;
        __builtin_memcpy(&eight, a.x.ptr<uint8_t>() + k, 8);
        if (eight == 0) {
          k += 7;
          continue;
        }
      }
      if (!is_set(a.x, k)) continue;
      int64_t rest = k;
      for (int axis = size.rank - 1; axis > 0; --axis) {
        out[axis] = rest % size.v[axis];
        rest /= size.v[axis];
      }
      if (size.rank > 0) out[0] = rest;
      out += size.rank;
    }
  });
}

}  // namespace tally::TALLY_ISA
