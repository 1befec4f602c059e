// Losses and gradients of cross-entropy on CUDA with one read of the logits: a block keeps a row in shared memory,
// takes its maximum and sum of exponentials from there as cross_entropy_cuda.cu does (in the same order: the same
// bits), and writes the gradient from there, possibly over the logits. Blocks stay for many rows: where a thread has
// used its last number of a row it at once fetches the same place of the next row (cp.async), so that memory reads
// while it writes. Two blocks share a multiprocessor; of rows that are longer than half of its shared memory (57,344
// numbers of bf16) the rest is read twice, mostly from the second cache. A warp instead of a block for short rows.
#include <algorithm>

#include "tally/ops/cross_entropy_cuda.cuh"

namespace tally::cuda {

namespace {

constexpr int kMostShared = 112 * 1024;  // of a block: two have the 228 KB of sm_90
constexpr int kGranule = 16;             // bytes that are moved at a time

__device__ __forceinline__ void fetch(uint4* to, const uint4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}

// A row and how it lies in memory: aligned granules from `base` on, of which the first holds `off` bytes before it.
template <class T>
struct FusedRow {
  const T* x;
  T* dx;
  int64_t target;
  bool ignored;
  int off, granules, kept;  // no granules where logits and gradients are not neighbours of the same alignment

  __device__ __forceinline__ FusedRow(const CrossEntropyFusedArgs& a, const Dims& outer, int64_t row, int room) {
    const int last = outer.rank;
    const int64_t n = a.logits.size.v[last];
    x = a.logits.ptr<T>() + offset_of(outer, a.logits.stride, row);
    dx = a.dlogits.ptr<T>() + offset_of(outer, a.dlogits.stride, row);
    target = target_at(a.targets, row);
    ignored = target == a.ignore_index;
    off = static_cast<int>(reinterpret_cast<uintptr_t>(x) % kGranule);
    const bool fast = a.logits.stride.v[last] == 1 && a.dlogits.stride.v[last] == 1 &&
                      off == static_cast<int>(reinterpret_cast<uintptr_t>(dx) % kGranule);
    granules = fast ? static_cast<int>((off + n * static_cast<int64_t>(sizeof(T)) + kGranule - 1) / kGranule) : 0;
    kept = ignored ? 0 : min(granules, room);
  }
  __device__ __forceinline__ const uint4* base() const {
    return reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(x) - off);
  }
};

// The loss of a row whose kept granules are in shared memory; f gets what its gradients need.
template <class T, int kBlock>
__device__ __forceinline__ float loss_of(const FusedRow<T>& r, const uint4* kept, int64_t n, int64_t step,
                                         float* shared, RowGradient& f, const FaultReport& report) {
  constexpr int kV = kVector<T>, kAhead = 16 / kV;
  const Access access = step != 1 ? Access::kStrided : r.off == 0 ? Access::kAligned : Access::kShifted;
  float at_target = NAN;
  if (threadIdx.x == 0 && inside(r.target, n, report)) at_target = load_one(r.x + r.target * step);
  const T* const near = reinterpret_cast<const T*>(reinterpret_cast<const char*>(kept) + r.off);
  // Numbers of the row that whole vectors in shared memory have.
  const int64_t whole = min(n, (int64_t{r.kept} - (r.off > 0)) * kV) / kV * kV;
  OnlineSum so_far;
  for (int64_t at = threadIdx.x * kV; at < n; at += kAhead * kBlock * kV) {
    float v[kAhead][kV];
    if (access == Access::kAligned && at + (kAhead - 1) * kBlock * kV < whole) {
#pragma unroll
      for (int u = 0; u < kAhead; ++u) load_vector(near + at + u * kBlock * kV, v[u]);
    } else {
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int64_t first = at + u * kBlock * kV;
        if (first >= whole) {
          load_piece(r.x, step, access, first, n, v[u]);
        } else if (r.off == 0) {
          load_vector(near + first, v[u]);
        } else {
          load_shifted(near + first, v[u]);
        }
      }
    }
    so_far.add(v);
  }
  float sum;
  so_far.join<kBlock>(shared, f.shift, sum);
  f.g = 1, f.target = r.target;
  f.factor = r.target >= 0 && r.target < n ? __fdiv_rn(1.0f, sum) : NAN;
  return logf(sum) - (at_target - f.shift);
}

// The gradient of a granule of row r: what lies before or after the row is not written.
template <class T>
__device__ __forceinline__ void write_granule(const FusedRow<T>& r, const RowGradient& f, uint4 raw, int granule,
                                              int64_t n) {
  constexpr int kV = kVector<T>;
  const uint32_t w[4] = {raw.x, raw.y, raw.z, raw.w};
  float v[kV];
  unpack(w, v);
  const int64_t first = int64_t{granule} * kV - r.off / static_cast<int>(sizeof(T));
  if (r.ignored) {
#pragma unroll
    for (int j = 0; j < kV; ++j) v[j] = 0;
  } else {
    f.run(v, first);
  }
  if (first >= 0 && first + kV <= n) return store_vector(r.dx + first, v);
#pragma unroll
  for (int j = 0; j < kV; ++j)
    if (first + j >= 0 && first + j < n) store_one(r.dx + first + j, v[j]);
}

// `room`: granules that shared memory has.
template <class T, int kBlock>
__global__ void __launch_bounds__(kBlock)
    fused_kernel(const __grid_constant__ CrossEntropyFusedArgs a, const __grid_constant__ Dims outer, int64_t rows,
                 int room, FaultReport report) {
  constexpr int kAhead = 4;
  extern __shared__ uint4 kept[];
  __shared__ float shared[kBlock / kWarp];
  const int last = outer.rank, thread = static_cast<int>(threadIdx.x);
  const int64_t n = a.logits.size.v[last], x_step = a.logits.stride.v[last], dx_step = a.dlogits.stride.v[last];
  FusedRow<T> r(a, outer, blockIdx.x, room);
  for (int g = thread; g < r.kept; g += kBlock) fetch(kept + g, r.base() + g);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    RowGradient f = {};
    const float loss = r.ignored ? 0.0f : loss_of<T, kBlock>(r, kept, n, x_step, shared, f, report);
    if constexpr (kBlock == kWarp) __syncwarp();  // has no barrier in the sums: all have read the row
    if (thread == 0) a.losses.ptr<float>()[row] = loss;
    if (r.granules == 0) {
      for (int64_t i = thread; i < n; i += kBlock)
        store_one(r.dx + i * dx_step, r.ignored ? 0.0f : f(load_one(r.x + i * x_step), i));
    }
    // From here on a thread reads only what it fetched itself, so it may put the next row there.
    const bool more = row + gridDim.x < rows;
    const FusedRow<T> next(a, outer, more ? row + gridDim.x : row, more ? room : 0);
    for (int first = thread; first < max(r.granules, next.kept); first += kAhead * kBlock) {
      uint4 raw[kAhead] = {};
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int g = first + u * kBlock;
        if (g < r.kept) {
          raw[u] = kept[g];
        } else if (g < r.granules && !r.ignored) {
          raw[u] = r.base()[g];
        }
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        if (const int g = first + u * kBlock; g < next.kept) fetch(kept + g, next.base() + g);
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        if (const int g = first + u * kBlock; g < r.granules) write_granule(r, f, raw[u], g, n);
    }
    r = next;
  }
}

__global__ void __launch_bounds__(kFinishThreads)
    count_kernel(const __grid_constant__ CrossEntropyFusedArgs a, int64_t rows) {
  const float count = block_count<kFinishThreads>(a.targets, rows, a.ignore_index);
  if (threadIdx.x == 0) a.count.ptr<float>()[0] = count;
}

template <class T, int kBlock>
void launch_fused(const CrossEntropyFusedArgs& a, int64_t rows, int64_t n) {
  const auto attribute = [&](cudaDeviceAttr what) {
    int value = 0;
    check_cuda("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&value, what, a.device().index));
    return value;
  };
  const auto kernel = fused_kernel<T, kBlock>;
  // A row may begin at the last number of a granule.
  const int64_t most =
      parts(n * static_cast<int64_t>(sizeof(T)) + kGranule - static_cast<int64_t>(sizeof(T)), kGranule);
  const int64_t there = std::min(kMostShared, attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - 1024) / kGranule;
  const int room = a.logits.stride.v[a.logits.rank() - 1] == 1 ? static_cast<int>(std::min(most, there)) : 0;
  const int bytes = room * kGranule;
  check_cuda(a.name, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  check_cuda(a.name, cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                          cudaSharedmemCarveoutMaxShared));
  int each = 0;
  check_cuda(a.name, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, kBlock, static_cast<size_t>(bytes)));
  const int64_t blocks = int64_t{std::max(each, 1)} * attribute(cudaDevAttrMultiProcessorCount);
  kernel<<<blocks_for(rows, 1, blocks), kBlock, static_cast<size_t>(bytes), stream_of(a.device())>>>(
      a, outer_of(a.logits), rows, room, fault_report(a.name, a.device()));
  check_launch(a.name);
}

}  // namespace

void cross_entropy_fused(const CrossEntropyFusedArgs& a) {
  const int64_t rows = a.targets.numel(), n = a.logits.size[a.logits.rank() - 1];
  with_float(a.name, a.logits.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (rows > 0) {
      n <= kShortRow ? launch_fused<T, kWarp>(a, rows, n) : launch_fused<T, kThreads>(a, rows, n);
    }
    count_kernel<<<1, kFinishThreads, 0, stream_of(a.device())>>>(a, rows);
    check_launch(a.name);
  });
}

}  // namespace tally::cuda
