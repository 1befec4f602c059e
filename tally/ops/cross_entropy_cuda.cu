// Cross-entropy on CUDA, a block a row (a warp for short rows). Forward in one pass over the logits: every thread keeps
// a maximum and a sum of exponentials relative to it, which the block then joins. Which thread takes which element
// depends on the row's length only: rows that do not begin at 16 bytes are read in aligned pieces that are shifted into
// place. A last launch of one block joins losses and counts. Backward: one read and one write of every logit, possibly
// in place. A target that is neither ignored nor a class gives a loss and gradients of NaN.
#include "tally/ops/cross_entropy_kernels.h"

#include "tally/ops/device.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kShortRow = 512;  // a warp instead of a block up to here

__device__ __forceinline__ int64_t target_at(const View& targets, int64_t row) {
  return targets.dtype == DType::kI64 ? targets.ptr<int64_t>()[row] : targets.ptr<int32_t>()[row];
}

__device__ __forceinline__ void unpack(const uint32_t (&w)[4], float (&x)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(w[i]);
}
__device__ __forceinline__ void unpack(const uint32_t (&w)[4], float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    x[2 * i] = __uint_as_float(w[i] << 16), x[2 * i + 1] = __uint_as_float(w[i] & 0xFFFF0000u);
}

// A vector from an address that is no multiple of 16: out of the two aligned ones that hold it, each of which has at
// least one of its bytes, so no read leaves the memory block.
template <class T>
__device__ __forceinline__ void load_shifted(const T* p, float (&x)[kVector<T>]) {
  const unsigned off = static_cast<unsigned>(reinterpret_cast<uintptr_t>(p) % 16);
  const uint4* const base = reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(p) - off);
  const uint4 a = base[0], b = base[1];
  const uint32_t w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  const unsigned words = off / 4, bits = off % 4 * 8;
  uint32_t from[5], to[4];
#pragma unroll
  for (int i = 0; i < 5; ++i)
    from[i] = words == 0 ? w[i] : words == 1 ? w[i + 1] : words == 2 ? w[i + 2] : w[i + 3 < 8 ? i + 3 : 7];
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = __funnelshift_r(from[i], from[i + 1], bits);
  unpack(to, x);
}

enum class Access { kAligned, kShifted, kStrided };

// Elements [at, at + kVector) of a row of n; -inf beyond its end.
template <class T>
__device__ __forceinline__ void load_piece(const T* row, int64_t step, Access access, int64_t at, int64_t n,
                                           float (&x)[kVector<T>]) {
  if (at + kVector<T> <= n && access == Access::kAligned) {
    load_vector(row + at, x);
  } else if (at + kVector<T> <= n && access == Access::kShifted) {
    load_shifted(row + at, x);
  } else {
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) x[j] = at + j < n ? load_one(row + (at + j) * step) : -INFINITY;
  }
}

// e^x by the hardware's 2^x; results below 2^-126 become 0.
__device__ __forceinline__ float exp_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__fmul_rn(x, 1.44269504f)));
  return y;
}

// The shift of exponentials below a maximum: a row of -inf has none.
__device__ __forceinline__ float shift_of(float most) { return most == -INFINITY ? 0.0f : most; }

template <class T, int kBlock>
__global__ void __launch_bounds__(kBlock)
    loss_kernel(const __grid_constant__ CrossEntropyArgs a, const __grid_constant__ Dims outer, int64_t rows) {
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
    if (threadIdx.x == 0 && target >= 0 && target < n) at_target = load_one(x + target * step);
    float most = -INFINITY, sum = 0;
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
      float top = most;
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
#pragma unroll
        for (int j = 0; j < kV; ++j) top = fmaxf(top, v[u][j]);
      const float shift = shift_of(top);
      sum *= exp_fast(most - shift);
      most = top;
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        float part = 0;
#pragma unroll
        for (int j = 0; j < kV; ++j) part += exp_fast(v[u][j] - shift);
        sum += part;
      }
    }
    const float shift = shift_of(block_max<kBlock>(most, shared));
    sum = block_sum<kBlock>(sum * exp_fast(most - shift), shared);
    if (threadIdx.x == 0) stats[0] = shift, stats[1] = sum, *loss = logf(sum) - (at_target - shift);
  }
}

constexpr int kFinishThreads = 1024;

// The count and, but for kNone, the sum or mean, by one block.
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(const __grid_constant__ CrossEntropyArgs a, int64_t rows) {
  __shared__ float shared[kFinishThreads / kWarp];
  __shared__ unsigned long long count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  float total = 0;
  unsigned mine = 0;
  const float* const losses = a.losses.ptr<float>();
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < rows; row += kFinishThreads) {
    mine += target_at(a.targets, row) != a.ignore_index;
    total += losses[row];
  }
  mine = __reduce_add_sync(kAll, mine);
  if (threadIdx.x % kWarp == 0) atomicAdd(&count, static_cast<unsigned long long>(mine));
  total = block_sum<kFinishThreads>(total, shared);  // has a barrier after the additions to count
  if (threadIdx.x != 0) return;
  const float valid = static_cast<float>(count);
  a.count.ptr<float>()[0] = valid;
  if (a.reduction == Reduction::kSum) a.out.ptr<float>()[0] = total;
  if (a.reduction == Reduction::kMean) a.out.ptr<float>()[0] = __fdiv_rn(total, valid);
}

// What a row's gradients are made of.
struct RowGradient {
  float shift, factor, g;
  int64_t target;

  __device__ __forceinline__ float probability(float x) const { return __fmul_rn(exp_fast(x - shift), factor); }
  __device__ __forceinline__ float operator()(float x, int64_t column) const {
    const float p = probability(x);
    return column == target ? __fsub_rn(p, g) : p;
  }
  // Columns from `first` on; one question for all of them whether the target is there.
  template <int kV>
  __device__ __forceinline__ void run(float (&x)[kV], int64_t first) const {
#pragma unroll
    for (int j = 0; j < kV; ++j) x[j] = probability(x[j]);
    if (target < first || target >= first + kV) return;
#pragma unroll
    for (int j = 0; j < kV; ++j)
      if (first + j == target) x[j] = __fsub_rn(x[j], g);
  }
};

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

Dims outer_of(const View& v) {
  Dims outer = v.size;
  --outer.rank;
  return outer;
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
      if (n <= kShortRow) {
        loss_kernel<T, kWarp><<<blocks, kWarp, 0, stream>>>(a, outer_of(a.logits), rows);
      } else {
        loss_kernel<T, kThreads><<<blocks, kThreads, 0, stream>>>(a, outer_of(a.logits), rows);
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
