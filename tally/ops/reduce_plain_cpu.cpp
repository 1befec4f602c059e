// Reductions of integers and truth values on the CPU: blocks of any dtype become i64, which one loop an op joins; the
// order does not matter. Places of extremes: blocks become keys of 32 or 64 bits whose order is that of the numbers
// (order_keys.h); a row takes the largest key of each block and looks for its place only when it is a new extreme.
#include "tally/ops/order_keys.h"
#include "tally/ops/reduce_plain_kernels.h"
#include "tally/ops/reduce_space.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int64_t kColumns = 128;  // outputs side by side
constexpr int64_t kPiece = 65536;  // elements of a long output that one task takes

TALLY_INLINE bool is_true(bf16 x) { return (x.bits & 0x7FFFu) != 0; }
TALLY_INLINE bool is_true(f16 x) { return (x.bits & 0x7FFFu) != 0; }
template <class T>
TALLY_INLINE bool is_true(T x) {
  return x != 0;
}
template <class T>
TALLY_INLINE int64_t whole(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<int64_t>(x);
  } else {
    return 0;
  }
}

// n elements as i64, or whether they are not 0.
void block_of(const View& v, int64_t at, int64_t step, int64_t n, bool truth, int64_t* buffer) {
  with_ordered(v.dtype, [&](auto tag) {
    const auto* p = v.ptr<decltype(tag)>() + at;
    if (truth) {
      for (int64_t i = 0; i < n; ++i) buffer[i] = is_true(p[i * step]);
    } else if (step == 1) {
      for (int64_t i = 0; i < n; ++i) buffer[i] = whole(p[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) buffer[i] = whole(p[i * step]);
    }
  });
}

template <PlainOp op>
struct Rule {
  static constexpr bool kTruth = op == PlainOp::kAny || op == PlainOp::kAll;
  static constexpr int64_t kNeutral = op == PlainOp::kMax                           ? INT64_MIN
                                      : op == PlainOp::kMin                         ? INT64_MAX
                                      : op == PlainOp::kProd || op == PlainOp::kAll ? 1
                                                                                    : 0;
  TALLY_INLINE static int64_t join(int64_t a, int64_t b) {
    if constexpr (op == PlainOp::kSum) return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    if constexpr (op == PlainOp::kProd)
      return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    if constexpr (op == PlainOp::kMax) return a > b ? a : b;
    if constexpr (op == PlainOp::kMin) return a < b ? a : b;
    if constexpr (op == PlainOp::kAny) return a | b;
    return a & b;
  }
};

template <class F>
void with_rule(PlainOp op, const F& f) {
  switch (op) {
    case PlainOp::kSum:
      return f(Rule<PlainOp::kSum>{});
    case PlainOp::kProd:
      return f(Rule<PlainOp::kProd>{});
    case PlainOp::kMax:
      return f(Rule<PlainOp::kMax>{});
    case PlainOp::kMin:
      return f(Rule<PlainOp::kMin>{});
    case PlainOp::kAny:
      return f(Rule<PlainOp::kAny>{});
    case PlainOp::kAll:
      return f(Rule<PlainOp::kAll>{});
  }
}

void write_whole(const View& v, int64_t at, int64_t x) {
  with_ordered(v.dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_integral_v<T>) v.ptr<T>()[at] = static_cast<T>(x);
  });
}

// Elements [start, start + count) of the output whose elements begin at `base`.
template <class R>
int64_t joined(const View& x, const Space& s, int64_t base, int64_t start, int64_t count) {
  int64_t buffer[kBlock], value = R::kNeutral;
  over_pieces(s, start, count, [&](int64_t at, int64_t, int64_t k) {
    for (int64_t i = 0; i < k; i += kBlock) {
      const int64_t m = k - i < kBlock ? k - i : kBlock;
      block_of(x, base + at + i * s.step, s.step, m, R::kTruth, buffer);
      for (int64_t j = 0; j < m; ++j) value = R::join(value, buffer[j]);
    }
  });
  return value;
}

template <class R>
int64_t joined_together(const View& x, const Space& s, int64_t base, int64_t total) {
  constexpr int64_t kTogether = 64;
  int64_t value = R::kNeutral, results[kTogether];
  for (int64_t start = 0; start < total; start += kTogether * kPiece) {
    const int64_t left = total - start, pieces = left < kTogether * kPiece ? (left + kPiece - 1) / kPiece : kTogether;
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t rest = left - p * kPiece;
        results[p] = joined<R>(x, s, base, start + p * kPiece, rest < kPiece ? rest : kPiece);
      }
    });
    for (int64_t p = 0; p < pieces; ++p) value = R::join(value, results[p]);
  }
  return value;
}

// f(rows' pieces of columns): for units of up to kColumns kept elements: f(offset in x, number of the first, m).
template <class F>
void over_columns(const Space& kept, int64_t total, const F& f) {
  const int64_t chunks = (kept.n + kColumns - 1) / kColumns;
  parallel_for(kept.rows * chunks, row_grain(kColumns * total), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit / chunks, start = unit % chunks * kColumns;
      f(row_offset(kept.outer, row) + start * kept.step, row * kept.n + start,
        kept.n - start < kColumns ? kept.n - start : kColumns);
    }
  });
}

// ---- places of extremes

// A key as a signed number; the wanted extreme is the largest, NaN before all.
template <class Key, class T>
TALLY_INLINE Key signed_key(T x, bool least) {
  constexpr bool kFloat = !std::is_integral_v<T>;
  const auto key = order_key(x);
  using U = decltype(order_key(T{}));
  constexpr U kMost = static_cast<U>(~U{0});
  const U wanted = least && !(kFloat && key == kMost) ? static_cast<U>(~key) : key;
  return static_cast<Key>(static_cast<std::make_signed_t<U>>(wanted ^ (U{1} << (8 * sizeof(U) - 1))));
}

template <class Key>
void keys_of(const View& v, int64_t at, int64_t step, int64_t n, bool least, Key* keys) {
  with_ordered(v.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* p = v.ptr<T>() + at;
    if (step == 1) {
      for (int64_t i = 0; i < n; ++i) keys[i] = signed_key<Key>(p[i], least);
    } else {
      for (int64_t i = 0; i < n; ++i) keys[i] = signed_key<Key>(p[i * step], least);
    }
  });
}

// The largest, or the least, of n neighbouring floats, found without keys; false where one is NaN.
bool extreme_of(const float* x, int64_t n, bool least, float& extreme) {
  using Four = float __attribute__((vector_size(16)));
  using Mask = int32_t __attribute__((vector_size(16)));
  constexpr int kChains = 4;
  Four best[kChains];
  Mask nan[kChains] = {};
  for (Four& b : best) b = Four{} + x[0];
  const auto run = [&](auto more) __attribute__((always_inline)) {
    int64_t i = 0;
    for (; i + 4 * kChains <= n; i += 4 * kChains)
      for (int c = 0; c < kChains; ++c) {
        Four v;
        __builtin_memcpy(&v, x + i + 4 * c, sizeof v);
        best[c] = more(v, best[c]) ? v : best[c];
        nan[c] |= v != v;
      }
    extreme = x[0];
    bool bad = extreme != extreme;
    for (int c = 0; c < kChains; ++c)
      for (int j = 0; j < 4; ++j) {
        if (more(best[c][j], extreme)) extreme = best[c][j];
        bad = bad || nan[c][j] != 0;
      }
    for (; i < n; ++i) {
      if (more(x[i], extreme)) extreme = x[i];
      bad = bad || x[i] != x[i];
    }
    return !bad;
  };
  return least ? run([](auto a, auto b) { return a < b; }) : run([](auto a, auto b) { return a > b; });
}

template <class Key>
int64_t place_in_row(const ArgReduceArgs& a, int64_t at, int64_t step, int64_t n) {
  Key keys[kBlock], best = 0;
  int64_t place = -1;
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t m = n - start < kBlock ? n - start : kBlock;
    const float* x = a.x.dtype == DType::kF32 && step == 1 ? a.x.ptr<float>() + at + start : nullptr;
    float extreme;
    const bool by_value = x != nullptr && extreme_of(x, m, a.least, extreme);
    Key most;
    if (by_value) {
      most = signed_key<Key>(extreme, a.least);
    } else {
      keys_of(a.x, at + start * step, step, m, a.least, keys);
      most = keys[0];
      for (int64_t i = 1; i < m; ++i) most = keys[i] > most ? keys[i] : most;
    }
    if (place >= 0 && most <= best) continue;
    best = most, place = start;
    if (by_value) {
      for (int64_t i = 0; x[i] != extreme; ++i) ++place;
    } else {
      for (int64_t i = 0; keys[i] != most; ++i) ++place;
    }
  }
  return place;
}

template <class Key>
void places_in_columns(const ArgReduceArgs& a, const Space& reduced, int64_t base, int64_t step, int64_t m,
                       int64_t* places) {
  Key keys[kColumns], best[kColumns], at[kColumns] = {};
  keys_of(a.x, base, step, m, a.least, best);
  for (int64_t r = 1; r < reduced.n; ++r) {
    keys_of(a.x, base + r * reduced.step, step, m, a.least, keys);
    const Key here = static_cast<Key>(r);
    for (int64_t i = 0; i < m; ++i) {
      const bool more = keys[i] > best[i];
      best[i] = more ? keys[i] : best[i];
      at[i] = more ? here : at[i];
    }
  }
  for (int64_t i = 0; i < m; ++i) places[i] = static_cast<int64_t>(at[i]);
}

template <class Key>
void arg_reduce_with(const ArgReduceArgs& a) {
  const Space reduced = space_of(a.x, a.out, true), kept = space_of(a.x, a.out, false);
  const Space out = space_of(a.out, a.out, false);
  int64_t* to = a.out.ptr<int64_t>();
  if (keeps_last_axis(a.x, a.out)) {
    return over_columns(kept, reduced.n, [&](int64_t base, int64_t first, int64_t m) {
      int64_t places[kColumns];
      places_in_columns<Key>(a, reduced, base, kept.step, m, places);
      over_pieces(out, first, m, [&](int64_t at, int64_t done, int64_t k) {
        for (int64_t i = 0; i < k; ++i) to[at + i * out.step] = places[done + i];
      });
    });
  }
  parallel_for(kept.numel(), row_grain(reduced.n), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      to[offset_in(out, k)] = place_in_row<Key>(a, offset_in(kept, k), reduced.step, reduced.n);
  });
}

// ---- the gradient of a product

template <class F>
TALLY_INLINE void over_elements(const Space& s, const Space& other, const F& f) {
  const int64_t n = s.numel();
  if (s.rows == 1 && other.rows == 1) {
    for (int64_t i = 0; i < n; ++i) f(i * s.step, i * other.step);
  } else {
    for (int64_t i = 0; i < n; ++i) f(offset_in(s, i), offset_in(other, i));
  }
}

template <class T>
void product_gradient(const Space& x_at, const Space& dx_at, const T* x, T* dx, double g) {
  double product = g;
  int64_t zeros = 0;
  over_elements(x_at, x_at, [&](int64_t at, int64_t) {
    const double v = load_one(x + at);
    zeros += v == 0;
    product *= v == 0 ? 1.0 : v;
  });
  over_elements(x_at, dx_at, [&](int64_t at, int64_t to) {
    const double v = load_one(x + at);
    const double d = zeros == 0 ? product / v : zeros == 1 && v == 0 ? product : 0.0;
    store_one(dx + to, static_cast<Compute<T>>(d));
  });
}

}  // namespace

void reduce_plain(const ReducePlainArgs& a) {
  if (a.out.numel() == 0) return;
  const Space reduced = space_of(a.x, a.out, true), kept = space_of(a.x, a.out, false);
  const Space out = space_of(a.out, a.out, false);
  const int64_t total = reduced.numel();
  with_rule(a.op, [&](auto rule) {
    using R = decltype(rule);
    if (keeps_last_axis(a.x, a.out)) {
      return over_columns(kept, total, [&](int64_t base, int64_t first, int64_t m) {
        int64_t value[kColumns], buffer[kColumns];
        for (int64_t i = 0; i < m; ++i) value[i] = R::kNeutral;
        for (int64_t row = 0; row < reduced.rows; ++row) {
          const int64_t from = base + row_offset(reduced.outer, row);
          for (int64_t r = 0; r < reduced.n; ++r) {
            block_of(a.x, from + r * reduced.step, kept.step, m, R::kTruth, buffer);
            for (int64_t i = 0; i < m; ++i) value[i] = R::join(value[i], buffer[i]);
          }
        }
        over_pieces(out, first, m, [&](int64_t at, int64_t done, int64_t k) {
          for (int64_t i = 0; i < k; ++i) write_whole(a.out, at + i * out.step, value[done + i]);
        });
      });
    }
    if (total >= 2 * kPiece && kept.numel() < 32) {
      for (int64_t k = 0; k < kept.numel(); ++k)
        write_whole(a.out, offset_in(out, k), joined_together<R>(a.x, reduced, offset_in(kept, k), total));
      return;
    }
    parallel_for(kept.numel(), row_grain(total), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        write_whole(a.out, offset_in(out, k), joined<R>(a.x, reduced, offset_in(kept, k), 0, total));
    });
  });
}

void arg_reduce(const ArgReduceArgs& a) {
  if (a.out.numel() == 0) return;
  if (wide_key(a.x.dtype) || (a.x.size.rank > 0 && a.x.size.v[a.axis] > INT32_MAX)) {
    arg_reduce_with<int64_t>(a);
  } else {
    arg_reduce_with<int32_t>(a);
  }
}

void prod_backward(const ProdBackwardArgs& a) {
  if (a.dx.numel() == 0) return;
  const Space reduced = space_of(a.x, a.grad, true), kept = space_of(a.x, a.grad, false);
  const Space reduced_dx = space_of(a.dx, a.grad, true), kept_dx = space_of(a.dx, a.grad, false);
  const Space grad = space_of(a.grad, a.grad, false);
  with_float(a.x.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(kept.numel(), row_grain(reduced.numel()), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        product_gradient<T>(reduced, reduced_dx, a.x.ptr<T>() + offset_in(kept, k),
                            a.dx.ptr<T>() + offset_in(kept_dx, k),
                            static_cast<double>(load_one(a.grad.ptr<T>() + offset_in(grad, k))));
    });
  });
}

}  // namespace tally::TALLY_ISA
