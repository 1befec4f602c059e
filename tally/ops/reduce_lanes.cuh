// The loop of plain reductions on CUDA: a block has some outputs, `lanes` threads each, which take its elements in
// turns and join what they have in a fixed tree. An output's elements are numbered in logical order, so a result does
// not depend on strides. Simple rather than fast: sums and maxima of floats have their own kernels (reduce_cuda.cu).
#pragma once

#include "tally/ops/device_rows.cuh"

namespace tally::cuda {

constexpr int kReduceThreads = 256;

struct Outputs {
  Space kept, reduced;  // of x
  Space to;             // of out
  int64_t outputs = 0, elements = 1;
  int lanes = 1;      // a power of 2
  bool rows = false;  // lanes are neighbouring threads, else columns are
};

inline Outputs outputs_of(const View& x, const View& out) {
  unsigned axes = 0;
  Outputs o;
  o.rows = true;
  for (int axis = 0; axis < x.size.rank; ++axis) {
    const bool reduced = x.size.v[axis] != out.size.v[axis];
    if (reduced) axes |= 1u << axis, o.elements *= x.size.v[axis];
    if (x.size.v[axis] != 1) o.rows = reduced;
  }
  o.kept = space_of(x, ~axes), o.reduced = space_of(x, axes), o.to = space_of(out, ~0u);
  o.outputs = out.numel();
  if (o.rows) {
    o.lanes = o.elements > 1024 ? kReduceThreads : o.elements > 16 ? kWarp : 1;
  } else {
    o.lanes = o.elements > 1024 ? 32 : o.elements > 64 ? 8 : 1;
  }
  return o;
}
inline unsigned blocks_of(const Outputs& o) {
  return blocks_for(o.outputs, kReduceThreads / o.lanes, int64_t{1} << 20);
}

// take(value so far, offset in x, number of the element, output) for all elements, join(a, b) of two values,
// write(output, offset in out, value). `shared` has room for kReduceThreads values.
template <class N, class Take, class Join, class Write>
__device__ __forceinline__ void over_outputs(const Outputs& o, N neutral, N* shared, const Take& take, const Join& join,
                                             const Write& write) {
  const int t = static_cast<int>(threadIdx.x), width = kReduceThreads / o.lanes;
  const int lane = o.rows ? t % o.lanes : t / width, column = o.rows ? t / o.lanes : t % width;
  for (int64_t begin = int64_t{blockIdx.x} * width; begin < o.outputs; begin += int64_t{gridDim.x} * width) {
    const int64_t k = begin + column;
    N value = neutral;
    if (k < o.outputs) {
      const int64_t base = offset_in(o.kept, k);
      for (int64_t r = lane; r < o.elements; r += o.lanes) value = take(value, base + offset_in(o.reduced, r), r, k);
    }
    shared[lane * width + column] = value;
    __syncthreads();
    for (int half = o.lanes / 2; half > 0; half /= 2) {
      if (lane < half)
        shared[lane * width + column] = join(shared[lane * width + column], shared[(lane + half) * width + column]);
      __syncthreads();
    }
    if (lane == 0 && k < o.outputs) write(k, offset_in(o.to, k), shared[column]);
    __syncthreads();  // before shared is written again
  }
}

}  // namespace tally::cuda
