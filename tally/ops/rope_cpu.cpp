// Rotary position embedding on the CPU. The table is computed in f64; the rotation splits a row of the table into
// cosines and sines once for all heads of a position.
#include "tally/ops/rope_kernels.h"

#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int64_t kPairs = 256;  // pairs handled at a time, so that the buffers have a fixed size

// pairs [first, first + n) of the heads of one position; at: offsets of the position.
template <class T>
void rotate(const RopeArgs& a, int64_t x_at, int64_t out_at, const Compute<T>* c, const Compute<T>* s, int64_t first,
            int64_t n) {
  using C = Compute<T>;
  const int64_t d = a.out.size[3];
  const int64_t apart = a.style == RopeStyle::kInterleaved ? 1 : d / 2;
  for (int64_t h = 0; h < a.out.size[2]; ++h) {
    const T* x = a.x.ptr<T>() + x_at + h * a.x.stride[2];
    T* y = a.out.ptr<T>() + out_at + h * a.out.stride[2];
    if (apart == 1) {
      x += 2 * first, y += 2 * first;
      for (int64_t i = 0; i < n; ++i) {
        const C even = load_one(x + 2 * i), odd = load_one(x + 2 * i + 1);
        store_one(y + 2 * i, even * c[i] - odd * s[i]);
        store_one(y + 2 * i + 1, odd * c[i] + even * s[i]);
      }
    } else {
      x += first, y += first;
      for (int64_t i = 0; i < n; ++i) {
        const C low = load_one(x + i), high = load_one(x + i + apart);
        store_one(y + i, low * c[i] - high * s[i]);
        store_one(y + i + apart, high * c[i] + low * s[i]);
      }
    }
  }
}

}  // namespace

void rope_table(const RopeTableArgs& a) {
  const int64_t positions = a.out.size[0], pairs = a.out.size[1];
  if (a.out.numel() == 0) return;
  parallel_for(positions, 1 + 1024 / pairs, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < pairs; ++i) {
      const double frequency = __builtin_pow(a.theta, -static_cast<double>(i) / static_cast<double>(pairs));
      for (int64_t t = begin; t < end; ++t) {
        const double angle = static_cast<double>(a.first_position + t) * frequency;
        float* out = a.out.ptr<float>() + t * a.out.stride[0] + i * a.out.stride[1];
        out[0] = static_cast<float>(__builtin_cos(angle));
        out[a.out.stride[2]] = static_cast<float>(__builtin_sin(angle));
      }
    }
  });
}

void rope(const RopeArgs& a) {
  if (a.out.numel() == 0) return;
  const int64_t t_size = a.out.size[1], pairs = a.out.size[3] / 2;
  const int64_t position = a.out.size[2] * a.out.size[3];  // elements
  with_float(a.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    parallel_for(a.out.size[0] * t_size, 1 + kGrainElements / position, [&](int64_t begin, int64_t end) {
      Compute<T> c[kPairs], s[kPairs];
      for (int64_t row = begin; row < end; ++row) {
        const int64_t b = row / t_size, t = row % t_size;
        for (int64_t first = 0; first < pairs; first += kPairs) {
          const int64_t n = pairs - first < kPairs ? pairs - first : kPairs;
          const float* table = a.table.ptr<float>() + t * a.table.stride[0] + first * a.table.stride[1];
          for (int64_t i = 0; i < n; ++i) {
            c[i] = table[i * a.table.stride[1]];
            s[i] = table[i * a.table.stride[1] + a.table.stride[2]];
            if (a.inverse) s[i] = -s[i];
          }
          rotate<T>(a, b * a.x.stride[0] + t * a.x.stride[1], b * a.out.stride[0] + t * a.out.stride[1], c, s, first,
                    n);
        }
      }
    });
  });
}

}  // namespace tally::TALLY_ISA
