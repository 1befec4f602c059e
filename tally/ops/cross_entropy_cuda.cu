// Cross-entropy on CUDA, a block a row (a warp for short rows). Forward in one pass over the logits: every thread keeps
// a maximum and a sum of exponentials relative to it, which the block then joins. Which thread takes which element
// depends on the row's length only: rows that do not begin at 16 bytes are read in aligned pieces that are shifted into
// place. A last launch of one block joins losses and counts. Backward: one read and one write of every logit, possibly
// in place. A target that is neither ignored nor a class is reported (core/fault.h) and
// gives a loss and gradients of NaN.
#include "tally/ops/cross_entropy_cuda.cuh"

namespace tally::cuda {

namespace {

template <class T, int kBlock>
__global__ void __launch_bounds__(kBlock)
    loss_kernel(const __grid_constant__ CrossEntropyArgs a, const __grid_constant__ Dims outer, int64_t rows,
                FaultReport report) {
  constexpr int kV = kVector<T>, kAhead = 16 / kV;  // vectors of a thread in flight
  __shared__ float shared[kBlock / kWarp];
  const int last = outer.rank;
  const int64_t n = a.logits.size.v[last], step = a.logits.stride.v[last];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float* const stats = a.stats.ptr<float>() + 2 * row;
    float* const loss = a.losses.ptr<float>() + row;
    const int64_t target = target_at(a.targets, row);
    if (target == a.ignore_index) {  // the same for the whole block
      if (threadIdx.x == 0) stats[0] = 0, stats[1] = 1, *loss = 0;
      continue;
    }
    const T* const x = a.logits.ptr<T>() + offset_of(outer, a.logits.stride, row);
    const Access access = step != 1                                  ? Access::kStrided
                          : reinterpret_cast<uintptr_t>(x) % 16 == 0 ? Access::kAligned
                                                                     : Access::kShifted;
    float at_target = NAN;
    if (threadIdx.x == 0 && inside(target, n, report)) at_target = load_one(x + target * step);
    OnlineSum so_far;
    for (int64_t at = threadIdx.x * kV; at < n; at += kAhead * kBlock * kV) {
      float v[kAhead][kV];
      if (access == Access::kAligned && at + (kAhead - 1) * kBlock * kV + kV <= n) {  // no branch between the loads
#pragma unroll
        for (int u = 0; u < kAhead; ++u) load_vector(x + at + u * kBlock * kV, v[u]);
      } else if (access == Access::kShifted && at + (kAhead - 1) * kBlock * kV + kV <= n) {
#pragma unroll
        for (int u = 0; u < kAhead; ++u) load_shifted(x + at + u * kBlock * kV, v[u]);
      } else {
#pragma unroll
        for (int u = 0; u < kAhead; ++u) load_piece(x, step, access, at + u * kBlock * kV, n, v[u]);
      }
      so_far.add(v);
    }
    float shift, sum;
    so_far.join<kBlock>(shared, shift, sum);
    if (threadIdx.x == 0) stats[0] = shift, stats[1] = sum, *loss = logf(sum) - (at_target - shift);
  }
}

// The count and, but for kNone, the sum or mean, by one block.
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(const __grid_constant__ CrossEntropyArgs a, int64_t rows) {
  __shared__ float shared[kFinishThreads / kWarp];
  float total = 0;
  const float* const losses = a.losses.ptr<float>();
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < rows; row += kFinishThreads) total += losses[row];
  const float valid = block_count<kFinishThreads>(a.targets, rows, a.ignore_index);
  total = block_sum<kFinishThreads>(total, shared);
  if (threadIdx.x != 0) return;
  a.count.ptr<float>()[0] = valid;
  if (a.reduction == Reduction::kSum) a.out.ptr<float>()[0] = total;
  if (a.reduction == Reduction::kMean) a.out.ptr<float>()[0] = __fdiv_rn(total, valid);
}

template <class T>
__global__ void __launch_bounds__(kThreads) gradient_kernel(const __grid_constant__ CrossEntropyBackwardArgs a,
                                                            const __grid_constant__ Dims outer, int64_t rows) {
  constexpr int kV = kVector<T>, kAhead = 4;  // vectors of a thread in flight
  const int last = outer.rank;
  const int64_t n = a.logits.size.v[last], x_step = a.logits.stride.v[last], dx_step = a.dlogits.stride.v[last];
  const int64_t threads = blockDim.x, thread = threadIdx.x;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const x = a.logits.ptr<T>() + offset_of(outer, a.logits.stride, row);
    T* const dx = a.dlogits.ptr<T>() + offset_of(outer, a.dlogits.stride, row);
    RowGradient f;
    f.target = target_at(a.targets, row);
    const bool ignored = f.target == a.ignore_index;
    f.g = a.grad.ptr<float>()[a.reduction == Reduction::kNone ? row : 0];
    if (a.reduction == Reduction::kMean) f.g = __fdiv_rn(f.g, a.count.ptr<float>()[0]);
    f.shift = a.stats.ptr<float>()[2 * row];
    f.factor = __fdiv_rn(f.g, a.stats.ptr<float>()[2 * row + 1]);
    if (f.target < 0 || f.target >= n) f.factor = NAN;
    const auto one = [&](int64_t i) { store_one(dx + i * dx_step, ignored ? 0.0f : f(load_one(x + i * x_step), i)); };
    const uintptr_t x_off = reinterpret_cast<uintptr_t>(x) % 16, dx_off = reinterpret_cast<uintptr_t>(dx) % 16;
    if (x_step != 1 || dx_step != 1 || x_off != dx_off) {
      for (int64_t i = thread; i < n; i += threads) one(i);
      continue;
    }
    // Elements up to the first multiple of 16 bytes, vectors, and the rest: every element is on its own.
    int64_t head = static_cast<int64_t>((16 - x_off) % 16 / sizeof(T));
    if (head > n) head = n;
    const int64_t vectors = (n - head) / kV;
    if (thread < head) one(thread);
    if (const int64_t tail = head + vectors * kV + thread; tail < n) one(tail);
    for (int64_t first = thread; first < vectors; first += kAhead * threads) {
      float v[kAhead][kV] = {};
      if (!ignored) {
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (first + u * threads < vectors) load_vector(x + head + (first + u * threads) * kV, v[u]);
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int64_t at = head + (first + u * threads) * kV;
        if (first + u * threads >= vectors) break;
        if (!ignored) f.run(v[u], at);
        store_vector(dx + at, v[u]);
      }
    }
  }
}

constexpr int64_t kMostBlocks = int64_t{1} << 30;

}  // namespace

void cross_entropy(const CrossEntropyArgs& a) {
  const int64_t rows = a.targets.numel(), n = a.logits.size[a.logits.rank() - 1];
  const cudaStream_t stream = stream_of(a.device());
  with_float("cross_entropy", a.logits.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (rows > 0) {
      const unsigned blocks = blocks_for(rows, 1, kMostBlocks);
      const FaultReport report = fault_report("cross_entropy", a.device());
      if (n <= kShortRow) {
        loss_kernel<T, kWarp><<<blocks, kWarp, 0, stream>>>(a, outer_of(a.logits), rows, report);
      } else {
        loss_kernel<T, kThreads><<<blocks, kThreads, 0, stream>>>(a, outer_of(a.logits), rows, report);
      }
      check_launch("cross_entropy");
    }
    finish_kernel<<<1, kFinishThreads, 0, stream>>>(a, rows);
    check_launch("cross_entropy");
  });
}

void cross_entropy_backward(const CrossEntropyBackwardArgs& a) {
  const int64_t rows = a.targets.numel(), n = a.logits.size[a.logits.rank() - 1];
  if (a.logits.numel() == 0) return;
  with_float("cross_entropy_backward", a.logits.dtype, [&](auto tag) {
    using T = decltype(tag);
    const int threads = n <= kShortRow ? kWarp : kThreads;
    gradient_kernel<T>
        <<<blocks_for(rows, 1, kMostBlocks), threads, 0, stream_of(a.device())>>>(a, outer_of(a.logits), rows);
    check_launch("cross_entropy_backward");
  });
}

}  // namespace tally::cuda
