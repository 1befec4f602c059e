// Scatter on CUDA. A thread has a lane along the axis and a range of rows of `out`, and takes the index in order. Where
// all lanes share a long index, a block has some rows of `out` and first looks, all threads together, for the last
// place that goes to each of them (a maximum over integers, whose order does not matter); the numbers of those places
// are then written once. Integers that are added go through atomic additions of integers where the item has 4 or 8
// bytes: their sum does not depend on the order. An index outside its axis writes nothing.
#include "tally/ops/scatter_kernels.h"

#include "tally/ops/device.cuh"
#include "tally/ops/lanes.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kRowsOfBlock = 2048;
constexpr int64_t kBlocks = 132 * 8;

template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    lane_kernel(Lanes l, const T* src, const I* index, T* out, bool add, FaultReport report) {
  constexpr int kBatch = 4;
  let_next_start();
  wait_for_previous();
  const int64_t first_row = blockIdx.y * l.rows_of_range;
  const int64_t end_row = first_row + l.rows_of_range < l.rows ? first_row + l.rows_of_range : l.rows;
  for (int64_t lane = int64_t{blockIdx.x} * kThreads + threadIdx.x; lane < l.count;
       lane += int64_t{gridDim.x} * kThreads) {
    const T* const from = src + offset_of(l.size, l.in, lane);
    const I* const at = index + offset_of(l.size, l.index, lane);
    T* const to = out + offset_of(l.size, l.out, lane);
    for (int64_t first = 0; first < l.n; first += kBatch) {
      int64_t row[kBatch];
      T x[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const bool there = first + u < l.n;
        row[u] = there ? static_cast<int64_t>(at[(first + u) * l.index_along]) : -1;
        if (there && blockIdx.y == 0) inside(row[u], l.rows, report);
        x[u] = there ? from[(first + u) * l.in_along] : T{};
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        if (row[u] < first_row || row[u] >= end_row) continue;
        T* const p = to + row[u] * l.out_along;
        *p = static_cast<T>(add ? *p + x[u] : x[u]);
      }
    }
  }
}

// One index for all lanes; the block's rows of `out` one behind the other.
template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    last_kernel(Lanes l, const T* src, const I* index, T* out, FaultReport report) {
  __shared__ long long last[kRowsOfBlock];  // the last place of a row, or -1
  let_next_start();
  wait_for_previous();
  for (int64_t first_row = int64_t{blockIdx.x} * kRowsOfBlock; first_row < l.rows;
       first_row += int64_t{gridDim.x} * kRowsOfBlock) {
    const int64_t left = l.rows - first_row;
    const int rows = static_cast<int>(left < kRowsOfBlock ? left : kRowsOfBlock);
    for (int r = threadIdx.x; r < rows; r += kThreads) last[r] = -1;
    __syncthreads();
    for (int64_t j = threadIdx.x; j < l.n; j += kThreads) {
      const int64_t row = static_cast<int64_t>(index[j * l.index_along]) - first_row;
      if (first_row == 0) inside(row, l.rows, report);
      if (row >= 0 && row < rows) atomicMax(&last[row], static_cast<long long>(j));
    }
    __syncthreads();
    for (int64_t k = threadIdx.x; k < rows * l.count; k += kThreads) {
      const int64_t r = k / l.count, lane = k - r * l.count, j = last[r];
      if (j < 0) continue;
      out[offset_of(l.size, l.out, lane) + (first_row + r) * l.out_along] =
          src[offset_of(l.size, l.in, lane) + j * l.in_along];
    }
    __syncthreads();  // before the list is used again
  }
}

template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    add_kernel(Lanes l, const T* src, const I* index, T* out, int64_t numel, FaultReport report) {
  let_next_start();
  wait_for_previous();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < numel; k += step) {
    const int64_t j = k / l.count, lane = k - j * l.count;
    const int64_t row = index[offset_of(l.size, l.index, lane) + j * l.index_along];
    if (!inside(row, l.rows, report)) continue;
    atomicAdd(out + offset_of(l.size, l.out, lane) + row * l.out_along,
              src[offset_of(l.size, l.in, lane) + j * l.in_along]);
  }
}

template <class T>
void scatter_as(const ScatterArgs& a) {
  Lanes l = lanes_of(a.src, a.index, a.out, a.axis);
  bool shared = l.n > kThreads && !a.add;  // a list pays from some length on
  for (int i = 0; i < l.size.rank; ++i) shared = shared && (l.index[i] == 0 || l.size[i] == 1);
  with_index(ScatterArgs::name, a.index.dtype, [&](auto tag) {
    using I = decltype(tag);
    const T* const src = a.src.ptr<T>();
    const I* const index = a.index.ptr<I>();
    T* const out = a.out.ptr<T>();
    const FaultReport report = fault_report(ScatterArgs::name, a.device());
    if constexpr (sizeof(T) >= 4) {
      if (a.add) {
        const int64_t numel = a.src.numel();
        return launch_after(ScatterArgs::name, add_kernel<T, I>, {blocks_for(numel, kThreads), kThreads}, a.device(), l,
                            src, index, out, numel, report);
      }
    }
    if (shared)
      return launch_after(ScatterArgs::name, last_kernel<T, I>, {blocks_for(l.rows, kRowsOfBlock, 65535), kThreads},
                          a.device(), l, src, index, out, report);
    const int64_t tiles = blocks_for(l.count, kThreads);
    // Ranges so that the card is full; every one reads the whole index, so short lists have few.
    int64_t ranges = kBlocks / tiles;
    if (ranges > l.n / 64) ranges = l.n / 64;
    if (ranges > l.rows) ranges = l.rows;
    if (ranges < 1) ranges = 1;
    l.rows_of_range = parts(l.rows, ranges);
    const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(parts(l.rows, l.rows_of_range)));
    launch_after(ScatterArgs::name, lane_kernel<T, I>, {grid, kThreads}, a.device(), l, src, index, out, a.add, report);
  });
}

}  // namespace

void scatter(const ScatterArgs& a) {
  if (a.src.numel() == 0 || a.out.numel() == 0) return;
  switch (item_size(a.out.dtype)) {
    case 8:
      return scatter_as<unsigned long long>(a);
    case 4:
      return scatter_as<uint32_t>(a);
    case 2:
      return scatter_as<uint16_t>(a);
    default:
      return scatter_as<uint8_t>(a);
  }
}

}  // namespace tally::cuda
