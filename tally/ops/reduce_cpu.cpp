// Reductions on the CPU. Element number r of an output's reduced elements, in logical order, goes to part r mod 16 of
// leaf r / 512; leaves are joined in a binary tree (pairwise summation: Higham 1993, "The accuracy of floating point
// summation"), then the parts in one fixed tree. Where the last axis is reduced a vector holds elements of one output,
// else neighbouring outputs. One long output is cut into whole subtrees, which threads share.
#include "tally/ops/reduce_kernels.h"
#include "tally/ops/reduce_space.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int kParts = 16;
constexpr int64_t kColumns = 128;  // outputs that are joined side by side
constexpr int64_t kLeaf = 512;     // elements
constexpr int kLevels = 14;        // of the tree; the last one is a chain
constexpr int kGroupLevel = 7;     // a thread's piece of a long output is a subtree of 2^7 leaves
constexpr int64_t kGroup = kLeaf << kGroupLevel;

// ---- what the ops do, on numbers and vectors of numbers

template <class N>
TALLY_INLINE N larger(N x, N most) {
  return x > most || x != x ? x : most;
}
TALLY_INLINE Vec larger(Vec x, Vec most) {
  const Vec plain = max2(x, most);
  return x != x ? x : plain;
}
template <class N>
TALLY_INLINE N smaller(N x, N least) {
  return x < least || x != x ? x : least;
}
TALLY_INLINE Vec smaller(Vec x, Vec least) {
  const Vec plain = min2(x, least);
  return x != x ? x : plain;
}

TALLY_INLINE double magnitude(double x) { return __builtin_fabs(x); }
TALLY_INLINE float magnitude(float x) { return abs_of(x); }
TALLY_INLINE Vec magnitude(Vec x) { return abs_of(x); }

TALLY_INLINE double power_of(double x, double p) {
  if (p == 0) return x != 0 ? 1.0 : 0.0;
  return __builtin_pow(x, p);
}
TALLY_INLINE float power_of(float x, double p) { return static_cast<float>(power_of(static_cast<double>(x), p)); }
TALLY_INLINE Vec power_of(Vec x, double p) {
  Vec y{};
  for (int i = 0; i < kLanes; ++i) y[i] = power_of(static_cast<float>(x[i]), p);
  return y;
}

template <ReduceOp op>
struct Rule {
  static constexpr bool kLargest = op == ReduceOp::kMax, kLeast = op == ReduceOp::kMin;
  static constexpr float kNeutral = kLargest                ? -__builtin_inff()
                                    : kLeast                ? __builtin_inff()
                                    : op == ReduceOp::kProd ? 1.0f
                                                            : 0.0f;
  // What map() turns into the neutral number.
  static float padding(float shift) {
    return op == ReduceOp::kSumDeviations ? shift : op == ReduceOp::kSumExp ? -__builtin_inff() : kNeutral;
  }
  template <class N>
  TALLY_INLINE static N map(N x, N shift, double p) {
    if constexpr (op == ReduceOp::kSumDeviations) return (x - shift) * (x - shift);
    if constexpr (op == ReduceOp::kSumExp) return exp_of(x - shift);
    if constexpr (op == ReduceOp::kSumAbs || op == ReduceOp::kMaxAbs) return magnitude(x);
    if constexpr (op == ReduceOp::kSumSquares) return x * x;
    if constexpr (op == ReduceOp::kSumPower) return power_of(magnitude(x), p);
    return x;
  }
  template <class N>
  TALLY_INLINE static N join(N x, N so_far) {
    if constexpr (kLargest || op == ReduceOp::kMaxAbs) return larger(x, so_far);
    if constexpr (kLeast) return smaller(x, so_far);
    if constexpr (op == ReduceOp::kProd) return so_far * x;
    return so_far + x;
  }
};

// f(rule) for a.op.
template <class F>
TALLY_INLINE void with_rule(ReduceOp op, const F& f) {
  switch (op) {
    case ReduceOp::kSum:
      return f(Rule<ReduceOp::kSum>{});
    case ReduceOp::kMax:
      return f(Rule<ReduceOp::kMax>{});
    case ReduceOp::kMin:
      return f(Rule<ReduceOp::kMin>{});
    case ReduceOp::kProd:
      return f(Rule<ReduceOp::kProd>{});
    case ReduceOp::kSumDeviations:
      return f(Rule<ReduceOp::kSumDeviations>{});
    case ReduceOp::kSumExp:
      return f(Rule<ReduceOp::kSumExp>{});
    case ReduceOp::kSumAbs:
      return f(Rule<ReduceOp::kSumAbs>{});
    case ReduceOp::kMaxAbs:
      return f(Rule<ReduceOp::kMaxAbs>{});
    case ReduceOp::kSumSquares:
      return f(Rule<ReduceOp::kSumSquares>{});
    case ReduceOp::kSumPower:
      return f(Rule<ReduceOp::kSumPower>{});
  }
}

// An infinite shift of exponentials counts as 0: exp(-inf - -inf) would be NaN.
template <class N>
TALLY_INLINE N usable_shift(const ReduceArgs& a, N shift) {
  return a.op == ReduceOp::kSumExp && magnitude(shift) == static_cast<N>(__builtin_inff()) ? N(0) : shift;
}
float shift_at(const ReduceArgs& a, int64_t at) {
  float buffer[kLanes];
  return usable_shift(a, *block_in(a.shift, at, 1, 1, buffer));
}

// ---- the tree of leaves

// push() takes the leaves of `place` numbers each in order (level > 0: whole subtrees); join_into() joins all.
// join(into, x) joins the numbers at x to those at into.
struct Counter {
  int64_t pushed = 0;  // leaves
  // The levels that the next one is joined with, from `level` on, and where it goes then.
  template <class Join>
  TALLY_INLINE int push(int level, const Join& join) {
    int l = level;
    for (; l < kLevels - 1 && (pushed >> l & 1); ++l) join(l);
    if (l == kLevels - 1 && pushed >> l > 0) join(l);
    pushed += int64_t{1} << level;
    return l;
  }
  template <class Join>
  TALLY_INLINE void finish(const Join& join) const {
    for (int l = 0; l < kLevels - 1; ++l)
      if (pushed >> l & 1) join(l);
    if (pushed >> (kLevels - 1) > 0) join(kLevels - 1);
  }
};

// ---- all elements of one output

// m reduced elements from number `start` on as f32, padded with `padding` to whole vectors. m <= kBlock.
const float* block_of(const View& x, int64_t base, const Space& s, int64_t start, int64_t m, float padding,
                      float* buffer) {
  const float* p = buffer;
  over_pieces(s, start, m, [&](int64_t offset, int64_t done, int64_t k) {
    p = block_in(x, base + offset, s.step, k, buffer + done);
    if (p == buffer + done || k == m) return;
    __builtin_memcpy(buffer + done, p, static_cast<uint64_t>(k) * sizeof(float));
    p = buffer;
  });
  if (m % kLanes == 0 && p != buffer && s.n >= m && start % s.n + m <= s.n) return p;  // in place
  for (int64_t j = m; j % kLanes != 0; ++j) buffer[j] = padding;
  return buffer;
}

struct Output {  // what one output is joined of
  int64_t base;  // of x
  float shift;
};

// A leaf of an output under way: elements from p on, in whole vectors.
struct Leaf {
  const float* p;
  int64_t m;
  Vec shift;
  Vec part[kPartials];
  alignas(64) float buffer[kBlock + kLanes];
};
static_assert(kLeaf == kBlock);
constexpr int kAtOnce = 4;  // leaves whose chains of operations run side by side

template <class R>
void begin_leaf(const ReduceArgs& a, const Space& s, const Output& o, int64_t number, Leaf& l) {
  const int64_t total = s.numel(), begin = number * kLeaf;
  l.m = total - begin < kLeaf ? total - begin : kLeaf;
  l.shift = broadcast(o.shift);
  for (Vec& p : l.part) p = broadcast(R::kNeutral);
  if (s.rows == 1 && s.step == 1 && a.x.dtype == DType::kF32 && l.m % kLanes == 0) {
    l.p = a.x.ptr<float>() + o.base + begin;
  } else {
    l.p = block_of(a.x, o.base, s, begin, l.m, R::padding(o.shift), l.buffer);
  }
}

template <class R>
void join_leaves(const ReduceArgs& a, Leaf* leaves, int count) {
  int64_t i = 0, shortest = leaves[0].m;
  for (int k = 1; k < count; ++k) shortest = leaves[k].m < shortest ? leaves[k].m : shortest;
  if (count == kAtOnce) {
    Vec part[kAtOnce][kPartials];
    for (int k = 0; k < kAtOnce; ++k)
      for (int j = 0; j < kPartials; ++j) part[k][j] = leaves[k].part[j];
    for (; i + kParts <= shortest; i += kParts)
#pragma GCC unroll 4
      for (int k = 0; k < kAtOnce; ++k) {
        __builtin_prefetch(leaves[k].p + i + kAtOnce * kLeaf);  // most often the same place of the next leaves
#pragma GCC unroll 4
        for (int j = 0; j < kPartials; ++j)
          part[k][j] = R::join(R::map(load(leaves[k].p + i + j * kLanes), leaves[k].shift, a.power), part[k][j]);
      }
    for (int k = 0; k < kAtOnce; ++k)
      for (int j = 0; j < kPartials; ++j) leaves[k].part[j] = part[k][j];
  }
  for (int k = 0; k < count; ++k) {
    Leaf& l = leaves[k];
    for (int64_t at = i; at < l.m; at += kParts)
      for (int j = 0; j < kPartials; ++j)
        if (at + j * kLanes < l.m)
          l.part[j] = R::join(R::map(load(l.p + at + j * kLanes), l.shift, a.power), l.part[j]);
  }
}

// Lane i with lane i + n.
template <class R, int n>
TALLY_INLINE Vec fold(Vec x) {
  VecI from{};
  for (int i = 0; i < kLanes; ++i) from[i] = (i + n) % kLanes;
  return R::join(__builtin_shuffle(x, from), x);
}
// The parts joined in one tree: part i with part i + 8, then 4, 2 and 1.
template <class R>
TALLY_INLINE float join_parts(const Vec (&part)[kPartials]) {
  Vec p[kPartials];
  for (int j = 0; j < kPartials; ++j) p[j] = part[j];
  for (int n = kPartials / 2; n > 0; n /= 2)
    for (int j = 0; j < n; ++j) p[j] = R::join(p[j + n], p[j]);
  Vec x = p[0];
  if constexpr (kLanes == 16) x = fold<R, 8>(x);
  if constexpr (kLanes >= 8) x = fold<R, 4>(x);
  x = fold<R, 2>(x);
  return fold<R, 1>(x)[0];
}

template <class R>
struct Tree {
  Counter counter;
  Vec level[kLevels][kPartials];
  TALLY_INLINE void push(int at, Vec (&part)[kPartials]) {
    const int to = counter.push(at, [&](int l) {
      for (int j = 0; j < kPartials; ++j) part[j] = R::join(part[j], level[l][j]);
    });
    for (int j = 0; j < kPartials; ++j) level[to][j] = part[j];
  }
  TALLY_INLINE float joined(Vec (&part)[kPartials]) const {
    counter.finish([&](int l) {
      for (int j = 0; j < kPartials; ++j) part[j] = R::join(part[j], level[l][j]);
    });
    return join_parts<R>(part);
  }
};

// Leaves [first, last) of an output into `tree`, but for the output's last leaf, which is left in `end`.
template <class R>
void grow(const ReduceArgs& a, const Space& s, const Output& o, int64_t first, int64_t last, Tree<R>& tree,
          Vec (&end)[kPartials]) {
  const int64_t leaves = (s.numel() + kLeaf - 1) / kLeaf;
  Leaf some[kAtOnce];
  for (int64_t next = first; next < last; next += kAtOnce) {
    const int count = static_cast<int>(last - next < kAtOnce ? last - next : kAtOnce);
    for (int k = 0; k < count; ++k) begin_leaf<R>(a, s, o, next + k, some[k]);
    join_leaves<R>(a, some, count);
    for (int k = 0; k < count; ++k) {
      if (next + k + 1 < leaves) {
        tree.push(0, some[k].part);
      } else {
        for (int j = 0; j < kPartials; ++j) end[j] = some[k].part[j];
      }
    }
  }
}

// `together`: the threads share its subtrees, kTogether at a time.
template <class R>
float reduce_one(const ReduceArgs& a, const Space& s, const Output& o, bool together) {
  constexpr int64_t kTogether = 64;
  const int64_t leaves = (s.numel() + kLeaf - 1) / kLeaf;
  Tree<R> tree;
  Vec part[kPartials];
  for (Vec& p : part) p = broadcast(R::kNeutral);
  int64_t next = 0;
  if (together) {
    const int64_t groups = (leaves - 1) >> kGroupLevel;  // whole ones; the last leaf is never among them
    for (int64_t first = 0; first < groups; first += kTogether) {
      const int64_t count = groups - first < kTogether ? groups - first : kTogether;
      Vec result[kTogether][kPartials];
      parallel_for(count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t g = begin; g < end; ++g) {
          Tree<R> own;
          Vec none[kPartials];
          grow<R>(a, s, o, (first + g) << kGroupLevel, (first + g + 1) << kGroupLevel, own, none);
          for (int j = 0; j < kPartials; ++j) result[g][j] = own.level[kGroupLevel][j];
        }
      });
      for (int64_t g = 0; g < count; ++g) tree.push(kGroupLevel, result[g]);
    }
    next = groups << kGroupLevel;
  }
  grow<R>(a, s, o, next, leaves, tree, part);
  return tree.joined(part);
}

// Short outputs, of one or two leaves: kAtOnce leaves side by side. write(k, value).
template <class R, class OutputOf, class Write>
void reduce_some(const ReduceArgs& a, const Space& s, int64_t begin, int64_t end, const OutputOf& output_of,
                 const Write& write) {
  const int leaves = s.numel() > kLeaf ? 2 : 1, outputs = kAtOnce / leaves;
  Leaf some[kAtOnce];
  for (int64_t k = begin; k < end; k += outputs) {
    const int count = static_cast<int>(end - k < outputs ? end - k : outputs);
    for (int i = 0; i < count; ++i) {
      const Output o = output_of(k + i);
      for (int l = 0; l < leaves; ++l) begin_leaf<R>(a, s, o, l, some[i * leaves + l]);
    }
    join_leaves<R>(a, some, count * leaves);
    for (int i = 0; i < count; ++i) {
      Leaf& last = some[i * leaves + leaves - 1];
      if (leaves == 2)
        for (int j = 0; j < kPartials; ++j) last.part[j] = R::join(last.part[j], some[i * leaves].part[j]);
      write(k + i, join_parts<R>(last.part));
    }
  }
}

// ---- neighbouring outputs

// Column c of every reduced element of up to kColumns outputs; parts side by side.
template <class R>
void reduce_columns(const ReduceArgs& a, int64_t base, const Space& s, int64_t step, int64_t m, const float* shift,
                    float* result) {
  alignas(64) float part[kParts][kColumns], level[kLevels][kParts][kColumns];
  alignas(64) float buffer[kColumns];
  const int64_t total = s.numel();
  const Vec neutral = broadcast(R::kNeutral);
  Counter counter;
  const auto join_rows = [&](float(*into)[kColumns], float(*from)[kColumns], int rows) {
    for (int p = 0; p < rows; ++p)
      for (int64_t i = 0; i < m; i += kLanes) store(into[p] + i, R::join(load(into[p] + i), load(from[p] + i)));
  };
  int64_t number = 0;
  for (int64_t row = 0; row < s.rows; ++row) {
    const int64_t from = base + row_offset(s.outer, row);
    for (int64_t r = 0; r < s.n; ++r, ++number) {
      const int64_t in_leaf = number % kLeaf;
      if (in_leaf == 0 && number > 0) {
        const int to = counter.push(0, [&](int l) { join_rows(part, level[l], kParts); });
        __builtin_memcpy(level[to], part, sizeof part);
      }
      const float* p = block_in(a.x, from + r * s.step, step, m, buffer);
      float* into = part[number % kParts];
      if (in_leaf < kParts) {
        for (int64_t i = 0; i < m; i += kLanes)
          store(into + i, R::join(R::map(load(p + i), load(shift + i), a.power), neutral));
      } else {
        for (int64_t i = 0; i < m; i += kLanes)
          store(into + i, R::join(R::map(load(p + i), load(shift + i), a.power), load(into + i)));
      }
    }
  }
  // Parts without an element are neutral; trailing ones are left out.
  const int64_t in_last = total - counter.pushed * kLeaf, filled = in_last < kParts ? in_last : kParts;
  int used = kParts;
  while (counter.pushed == 0 && used > 1 && used / 2 >= filled) used /= 2;
  for (int64_t p = filled; p < used; ++p)
    for (int64_t i = 0; i < m; i += kLanes) store(part[p] + i, neutral);
  counter.finish([&](int l) { join_rows(part, level[l], kParts); });
  for (int width = used / 2; width > 0; width /= 2) join_rows(part, part + width, width);
  __builtin_memcpy(result, part[0], static_cast<uint64_t>(m) * sizeof(float));
}

// The same of up to kUsed elements an output, m <= kBlock columns, straight to the result.
template <class R, int kUsed>
void reduce_few(const ReduceArgs& a, int64_t base, const Space& s, int64_t step, int64_t m, const float* shift,
                float* result) {
  alignas(64) float buffer[kUsed][kBlock];
  const float* p[kUsed];
  const int total = static_cast<int>(s.numel());
  for (int k = 0; k < kUsed; ++k) p[k] = block_in(a.x, base + offset_in(s, k < total ? k : 0), step, m, buffer[k]);
  const Vec neutral = broadcast(R::kNeutral), scale = broadcast(static_cast<float>(a.scale));
  for (int64_t i = 0; i < m; i += kLanes) {
    const Vec c = load(shift + i);
    Vec v[kUsed];
#pragma GCC unroll 16
    for (int k = 0; k < kUsed; ++k) v[k] = k < total ? R::join(R::map(load(p[k] + i), c, a.power), neutral) : neutral;
#pragma GCC unroll 16
    for (int width = kUsed / 2; width > 0; width /= 2)
#pragma GCC unroll 16
      for (int k = 0; k < width; ++k) v[k] = R::join(v[k + width], v[k]);
    store(result + i, v[0] * scale);
  }
}

// Columns [start, start + m) of row `row` of the kept axes; m <= kBlock where an output has up to 16 elements, else
// kColumns.
template <class R>
void columns(const ReduceArgs& a, const Space& reduced, const Space& kept, const Space& out, const Space& shift,
             int64_t row, int64_t start, int64_t m) {
  alignas(64) float result[kBlock], shifts[kBlock + kLanes];
  for (int64_t i = has_shift(a.op) ? m : 0; i < m + kLanes; ++i) shifts[i] = 0;
  const int64_t first = row * kept.n + start;  // out's own rows may be cut otherwise than x's
  if (has_shift(a.op)) {
    over_pieces(shift, first, m, [&](int64_t at, int64_t done, int64_t k) {
      const float* p = block_in(a.shift, at, shift.step, k, shifts + done);
      for (int64_t i = 0; i < k; ++i) shifts[done + i] = usable_shift(a, p[i]);
    });
  }
  const int64_t base = row_offset(kept.outer, row) + start * kept.step, total = reduced.numel();
  if (total >= 1 && total <= kParts) {
    const int64_t at = first % out.n, to = row_offset(out.outer, first / out.n) + at * out.step;
    const bool whole = out.n - at >= m && a.out.dtype == DType::kF32 && out.step == 1 && m % kLanes == 0;
    float* const place = whole ? a.out.ptr<float>() + to : result;
    if (total <= 8) {
      reduce_few<R, 8>(a, base, reduced, kept.step, m, shifts, place);
    } else {
      reduce_few<R, 16>(a, base, reduced, kept.step, m, shifts, place);
    }
    if (whole) return;
  } else {
    reduce_columns<R>(a, base, reduced, kept.step, m, shifts, result);
    const float scale = static_cast<float>(a.scale);
    for (int64_t i = 0; i < m; ++i) result[i] *= scale;
  }
  over_pieces(out, first, m, [&](int64_t at, int64_t done, int64_t k) {
    block_out(a.out, at, out.step, k, result + done, result + done);
  });
}

// ---- f64

template <class R>
double reduced_value_f64(const ReduceArgs& a, const Space& reduced, int64_t base, double shift) {
  double value = R::kNeutral;
  for (int64_t row = 0; row < reduced.rows; ++row) {
    const double* x = a.x.ptr<double>() + base + row_offset(reduced.outer, row);
    for (int64_t i = 0; i < reduced.n; ++i) value = R::join(R::map(x[i * reduced.step], shift, a.power), value);
  }
  return value * a.scale;
}

}  // namespace

void reduce(const ReduceArgs& a) {
  if (a.out.numel() == 0) return;
  const Space reduced = space_of(a.x, a.out, true), kept = space_of(a.x, a.out, false);
  const Space out = space_of(a.out, a.out, false);
  const bool shifted = has_shift(a.op);
  const Space shift = shifted ? space_of(a.shift, a.shift, false) : out;
  const int64_t total = reduced.numel(), outputs = kept.numel();
  with_rule(a.op, [&](auto rule) {
    using R = decltype(rule);
    if (a.x.dtype != DType::kF64 && keeps_last_axis(a.x, a.out)) {
      const int64_t width = total <= kParts ? kBlock : kColumns, chunks = (kept.n + width - 1) / width;
      return parallel_for(kept.rows * chunks, row_grain(width * total), [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t start = unit % chunks * width;
          columns<R>(a, reduced, kept, out, shift, unit / chunks, start,
                     kept.n - start < width ? kept.n - start : width);
        }
      });
    }
    const bool wide = a.x.dtype == DType::kF64, together = total >= 2 * kGroup && outputs < 32 && !wide;
    const auto output_of = [&](int64_t k) {
      return Output{offset_in(kept, k), shifted ? shift_at(a, offset_in(shift, k)) : 0.0f};
    };
    const auto write = [&](int64_t k, float value) {
      value *= static_cast<float>(a.scale);
      block_out(a.out, offset_in(out, k), 1, 1, &value, &value);
    };
    const auto some = [&](int64_t begin, int64_t end) {
      if (!wide && total > 0 && total <= 2 * kLeaf) return reduce_some<R>(a, reduced, begin, end, output_of, write);
      for (int64_t k = begin; k < end; ++k) {
        if (!wide) {
          write(k, reduce_one<R>(a, reduced, output_of(k), together));
          continue;
        }
        const double c = shifted ? usable_shift(a, a.shift.ptr<double>()[offset_in(shift, k)]) : 0.0;
        a.out.ptr<double>()[offset_in(out, k)] = reduced_value_f64<R>(a, reduced, offset_in(kept, k), c);
      }
    };
    if (together) return some(0, outputs);
    parallel_for(outputs, row_grain(total), some);
  });
}

}  // namespace tally::TALLY_ISA
