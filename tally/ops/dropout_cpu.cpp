// Dropout on the CPU: blocks of random words, then a select.
#include "tally/ops/dropout_kernels.h"

#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

namespace {

// Words of elements [first, first + n); word i lies at words[i + first % 4]. Four elements share a Philox call.
void random_words(const DropoutArgs& a, uint64_t stream, int64_t first, int64_t n, uint32_t* words) {
  const uint64_t begin = static_cast<uint64_t>(first) / 4, end = (static_cast<uint64_t>(first + n) + 3) / 4;
  for (uint64_t i = begin; i < end; ++i) {
    const Random4 r = philox(a.seed, stream, i);
    for (int j = 0; j < 4; ++j) words[(i - begin) * 4 + static_cast<uint64_t>(j)] = r.v[j];
  }
}

}  // namespace

void dropout(const DropoutArgs& a) {
  // uniform_from_u32(w) >= p exactly when w >> 8 >= p 2^24
  const uint32_t least = static_cast<uint32_t>(__builtin_ceil(static_cast<double>(a.p) * 0x1p24));
  const uint64_t steps = a.step.size.rank > 0 ? static_cast<uint64_t>(*a.step.ptr<int64_t>()) : 0;
  const uint64_t stream = a.stream + steps * kDropoutSteps;
  View order = a.x;  // the contiguous view of the same shape: its offset is the logical index
  int64_t step = 1;
  for (int axis = order.size.rank - 1; axis >= 0; --axis) order.stride[axis] = step, step *= order.size[axis];
  const View views[3] = {a.out, a.x, order};
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* stride) {
    alignas(64) float in[kBlock], out[kBlock];
    alignas(64) uint32_t words[kBlock + 8 + kLanes] = {};
    for (int64_t start = 0; start < n; start += kBlock) {
      const int64_t m = n - start < kBlock ? n - start : kBlock;
      const int64_t x_at = at[1] + start * stride[1], y_at = at[0] + start * stride[0], first = at[2] + start;
      random_words(a, stream, first, m, words);
      const uint32_t* word = words + first % 4;
      if (a.x.dtype == DType::kF64) {
        for (int64_t i = 0; i < m; ++i)
          a.out.ptr<double>()[y_at + i * stride[0]] =
              word[i] >> 8 >= least ? a.x.ptr<double>()[x_at + i * stride[1]] * static_cast<double>(a.scale) : 0.0;
        continue;
      }
      const float* x = block_in(a.x, x_at, stride[1], m, in);
      float* y = block_place(a.out, y_at, stride[0], m, out);
      for (int64_t i = 0; i < m; i += kLanes) {
        VecU w;
        __builtin_memcpy(&w, word + i, sizeof w);
        store(y + i, (w >> 8) >= broadcast_u(least) ? load(x + i) * a.scale : Vec{});
      }
      block_out(a.out, y_at, stride[0], m, y, out);
    }
  });
}

}  // namespace tally::TALLY_ISA
