// Draws on the CPU: blocks of words by vectors of Philox calls, then numbers of the words (random_lanes.h), then the
// output. A block's formula is that of random_bits() for every element.
#include "tally/ops/loops.h"
#include "tally/ops/random_kernels.h"
#include "tally/ops/random_lanes.h"

namespace tally::TALLY_ISA {

namespace {

// f(first element, words 0 to 3 of kWideLanes calls) for n calls from position `first` on; the last calls may be more.
template <class F>
TALLY_INLINE void over_calls(const RandomArgs& a, uint64_t first, int64_t n, const F& f) {
  WideU lane{};
  for (int i = 0; i < kWideLanes; ++i) lane[i] = static_cast<uint64_t>(i);
  for (int64_t k = 0; k < n; k += kWideLanes) {
    WideU word[4];
    philox_lanes(a.seed, a.stream, lane + (first + static_cast<uint64_t>(k)), word);
    f(k, word);
  }
}

// Words of elements [first, first + n), four of a call: where the first element's is. words: kBlock + 8 vectors.
const uint32_t* own_words(const RandomArgs& a, uint64_t first, int64_t n, uint32_t* words) {
  const int64_t skip = static_cast<int64_t>(first % 4);
  over_calls(a, first / 4, (skip + n + 3) / 4, [&](int64_t k, const WideU(&word)[4]) {
    for (int i = 0; i < kWideLanes; ++i)
      for (int j = 0; j < 4; ++j) words[4 * (k + i) + j] = static_cast<uint32_t>(word[j][i]);
  });
  return words + skip;
}

// Words 0 and 1 of every element's own call as one number.
void word_pairs(const RandomArgs& a, uint64_t first, int64_t n, uint64_t* pairs) {
  over_calls(a, first, n, [&](int64_t k, const WideU(&word)[4]) {
    const WideU both = (word[0] << 32) | (word[1] & 0xFFFFFFFFull);
    __builtin_memcpy(pairs + k, &both, sizeof both);
  });
}

void normal_numbers(const RandomArgs& a, uint64_t first, int64_t n, double* x) {
  const double mean = a.a, std = a.b;
  over_calls(a, first, n, [&](int64_t k, const WideU(&word)[4]) {
    const WideD y = std * normal_lanes(word[0], word[1]) + mean;
    __builtin_memcpy(x + k, &y, sizeof y);
  });
}

void truncated_numbers(const RandomArgs& a, uint64_t first, int64_t n, double* x) {
  const RandomArgs b = a;  // a copy: stores to x cannot change it
  over_calls(b, first, n, [&](int64_t k, const WideU(&word)[4]) {
    const WideD u = b.mass * open_uniform_lanes(word[0], word[1]) + b.low_mass;
    WideD y = b.b * quantile_lanes(u) + b.a;
    y = y < b.low ? WideD{} + b.low : y > b.high ? WideD{} + b.high : y;
    __builtin_memcpy(x + k, &y, sizeof y);
  });
}

Random4 call_of(uint64_t pair) { return {{static_cast<uint32_t>(pair >> 32), static_cast<uint32_t>(pair), 0, 0}}; }

// x as elements of out.
void put_numbers(const View& out, int64_t at, int64_t step, int64_t n, const double* x) {
  if (out.dtype == DType::kF32) {
    float* p = out.ptr<float>() + at;
    if (step == 1) {
      for (int64_t i = 0; i < n; ++i) p[i] = static_cast<float>(x[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) p[i * step] = static_cast<float>(x[i]);
    }
    return;
  }
  const int64_t item = item_size(out.dtype);
  for (int64_t i = 0; i < n; ++i) write_number_bits(out.data, item, at + i * step, number_bits(out.dtype, x[i]));
}

// a + b u for f32; u of 24 bits.
void put_uniform(const RandomArgs& a, int64_t at, int64_t step, int64_t n, const uint32_t* words) {
  float* p = a.out.ptr<float>() + at;
  const double low = a.a, range = a.b, high = a.high;
  const auto value = [&](int64_t i) __attribute__((always_inline)) {
    const double u = static_cast<double>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24;
    const float x = static_cast<float>(range * u + low), least = static_cast<float>(low);
    return static_cast<double>(x) < high ? x : least;
  };
  if (step == 1) {
    for (int64_t i = 0; i < n; ++i) p[i] = value(i);
  } else {
    for (int64_t i = 0; i < n; ++i) p[i * step] = value(i);
  }
}

void put_integers(const RandomArgs& a, int64_t at, int64_t step, int64_t n, uint64_t* x) {
  const DType t = a.out.dtype;
  const int64_t item = item_size(t);
  const auto below = [&](uint64_t pair) __attribute__((always_inline)) {
    return static_cast<uint64_t>(a.first) + draws::below(call_of(pair), a.range);
  };
  if (t == DType::kI64 && step == 1) {
    uint64_t* p = a.out.ptr<uint64_t>() + at;
    for (int64_t i = 0; i < n; ++i) p[i] = below(x[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t whole = below(x[i]);
    write_number_bits(a.out.data, item, at + i * step,
                      is_integer(t) ? whole : number_bits(t, static_cast<double>(static_cast<int64_t>(whole))));
  }
}

void put_truths(const RandomArgs& a, int64_t at, int64_t step, int64_t n, const uint32_t* words, int64_t p_at,
                int64_t p_step) {
  const uint64_t yes = number_bits(a.out.dtype, 1.0), no = number_bits(a.out.dtype, 0.0);
  const int64_t item = item_size(a.out.dtype);
  const auto hit = [&](int64_t i, double p) __attribute__((always_inline)) {
    return static_cast<double>(words[i]) * 0x1p-32 < p;
  };
  if (a.out.dtype == DType::kF32 && step == 1 && (!a.has_p() || (a.p.dtype == DType::kF32 && p_step == 1))) {
    float* out = a.out.ptr<float>() + at;
    if (!a.has_p()) {
      for (int64_t i = 0; i < n; ++i) out[i] = hit(i, a.a) ? 1.0f : 0.0f;
    } else {
      const float* p = a.p.ptr<float>() + p_at;
      for (int64_t i = 0; i < n; ++i) out[i] = hit(i, static_cast<double>(p[i])) ? 1.0f : 0.0f;
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const double p = a.has_p() ? read_number(a.p.data, a.p.dtype, p_at + i * p_step) : a.a;
    write_number_bits(a.out.data, item, at + i * step, hit(i, p) ? yes : no);
  }
}

// Uniform numbers of all dtypes.
void put_others(const RandomArgs& a, int64_t at, int64_t step, int64_t n, const uint32_t* words,
                const uint64_t* pairs) {
  const int64_t item = item_size(a.out.dtype);
  for (int64_t i = 0; i < n; ++i)
    write_number_bits(a.out.data, item, at + i * step,
                      random_bits(a, a.words() ? Random4{} : call_of(pairs[i]), a.words() ? words[i] : 0, a.a));
}

}  // namespace

void random(const RandomArgs& a) {
  View order = a.out;  // the contiguous view of the same shape: its offset is the logical index
  int64_t step = 1;
  for (int axis = order.size.rank - 1; axis >= 0; --axis) order.stride[axis] = step, step *= order.size[axis];
  const View views[3] = {a.out, order, a.has_p() ? a.p : a.out};
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* stride) {
    alignas(64) uint32_t words[kBlock + 8 * kLanes];
    alignas(64) uint64_t pairs[kBlock + kLanes];
    alignas(64) double numbers[kBlock + kLanes];
    for (int64_t k = 0; k < n; k += kBlock) {
      const int64_t m = n - k < kBlock ? n - k : kBlock, to = at[0] + k * stride[0];
      const uint64_t first = static_cast<uint64_t>(at[1] + k);
      if (a.kind == RandomKind::kNormal || a.kind == RandomKind::kTruncated) {
        (a.kind == RandomKind::kNormal ? normal_numbers : truncated_numbers)(a, first, m, numbers);
        put_numbers(a.out, to, stride[0], m, numbers);
        continue;
      }
      const uint32_t* own = words;
      if (a.words()) {
        own = own_words(a, first, m, words);
      } else {
        word_pairs(a, first, m, pairs);
      }
      if (a.kind == RandomKind::kBernoulli) {
        put_truths(a, to, stride[0], m, own, at[2] + k * stride[2], stride[2]);
      } else if (a.kind == RandomKind::kInteger) {
        put_integers(a, to, stride[0], m, pairs);
      } else if (a.kind == RandomKind::kUniform && a.out.dtype == DType::kF32) {
        put_uniform(a, to, stride[0], m, own);
      } else {
        put_others(a, to, stride[0], m, own, pairs);
      }
    }
  });
}

}  // namespace tally::TALLY_ISA
