// Gather on CUDA: axes that lie one behind the other are joined, and rows that one index serves are moved in the
// largest pieces, up to 16 bytes, that their alignment allows. The backward zeroes dx unless it adds, then gives every
// lane along the gathered axis, cut into ranges of rows of dx, to one thread, which adds what the index sends into its
// range in the order of the index. Where all lanes share the index, a block first collects what falls into its range.
// An index outside its axis reads nothing and is reported (core/fault.h): the gathered bits are ones (NaN as a float),
// its gradient is dropped.
#include "tally/ops/gather_kernels.h"

#include "tally/ops/lanes.cuh"
#include "tally/ops/pieces.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 2;  // elements of a thread in flight
constexpr int64_t kBlocks = 132 * 8;

// The axes of a gather after joining; strides in items. x's strides go with out's sizes but for `axis`.
struct Plan {
  Dims size, x, index, out;
  int axis = 0;
  int64_t rows = 0;  // of x along the axis

  void push(int64_t n, int64_t x_stride, int64_t index_stride, int64_t out_stride) {
    const int i = size.rank++;
    size[i] = n, x[i] = x_stride, index[i] = index_stride, out[i] = out_stride;
  }
};

Plan plan_of(const View& x, const View& index, const View& out, int axis) {
  Plan p;
  p.rows = x.size[axis];
  for (int i = 0; i < out.rank(); ++i) {
    const int64_t n = out.size[i];
    if (n == 1 && i != axis) continue;
    const int top = p.size.rank - 1;
    const bool gathered = i == axis || (i > axis && top == p.axis);
    const bool join = top >= 0 && !gathered && p.x[top] == n * x.stride[i] && p.index[top] == n * index.stride[i] &&
                      p.out[top] == n * out.stride[i];
    if (join) {
      p.size[top] *= n, p.x[top] = x.stride[i], p.index[top] = index.stride[i], p.out[top] = out.stride[i];
      continue;
    }
    if (i == axis) p.axis = p.size.rank;
    p.push(n, x.stride[i], index.stride[i], out.stride[i]);
  }
  return p;
}

template <class Item, class I>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(Plan p, const Item* x, const I* index, Item* out, int64_t numel, FaultReport report) {
  const int64_t step = int64_t{gridDim.x} * kThreads, along = p.x.v[p.axis];
  for (int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x; first < numel; first += step * kAhead) {
    int64_t from[kAhead], to[kAhead], row[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      int64_t rest = first + u * step, at = 0;
      if (rest >= numel) break;
      from[u] = to[u] = 0;
      for (int axis = p.size.rank - 1; axis >= 0; --axis) {
        const int64_t above = rest / p.size.v[axis], i = rest - above * p.size.v[axis];
        if (axis != p.axis) from[u] += i * p.x.v[axis];
        at += i * p.index.v[axis], to[u] += i * p.out.v[axis];
        rest = above;
      }
      row[u] = index[at];
    }
    Item item[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (first + u * step >= numel) break;
      item[u] = inside(row[u], p.rows, report) ? x[from[u] + row[u] * along] : ones<Item>();
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (first + u * step >= numel) break;
      out[to[u]] = item[u];
    }
  }
}

// The largest piece in bytes in which the rows of the last axis can be moved.
int64_t piece_of(const Plan& p, const void* x, const void* out, int64_t item) {
  const int last = p.size.rank - 1;
  if (last == p.axis || p.index[last] != 0 || p.x[last] != 1 || p.out[last] != 1) return item;
  uint64_t all =
      reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(out) | static_cast<uint64_t>(p.size[last] * item);
  for (int axis = 0; axis < last; ++axis)
    all |= static_cast<uint64_t>(p.x[axis] * item) | static_cast<uint64_t>(p.out[axis] * item);
  return largest_piece(all);
}

template <class Item>
void launch_gather(const GatherArgs& a, const Plan& p) {
  with_index("gather", a.index.dtype, [&](auto tag) {
    using I = decltype(tag);
    const int64_t numel = p.size.numel();
    gather_kernel<Item, I><<<blocks_for(numel, kThreads), kThreads, 0, stream_of(a.device())>>>(
        p, a.x.ptr<Item>(), a.index.ptr<I>(), a.out.ptr<Item>(), numel, fault_report("gather", a.device()));
    check_launch("gather");
  });
}

// ---- backward

__global__ void __launch_bounds__(kThreads) zero_kernel(const __grid_constant__ View dx, int64_t numel) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < numel; k += step)
    dx.ptr<float>()[offset_of(dx.size, dx.stride, k)] = 0;
}

// A thread a lane and range.
template <class T, class I>
__global__ void __launch_bounds__(kThreads) lane_kernel(Lanes l, const T* grad, const I* index, float* dx) {
  constexpr int kBatch = 4;
  const int64_t lane = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (lane >= l.count) return;
  const int64_t first_row = blockIdx.y * l.rows_of_range;
  const int64_t end_row = first_row + l.rows_of_range < l.rows ? first_row + l.rows_of_range : l.rows;
  grad += offset_of(l.size, l.in, lane);
  index += offset_of(l.size, l.index, lane);
  dx += offset_of(l.size, l.out, lane);
  for (int64_t first = 0; first < l.n; first += kBatch) {
    int64_t row[kBatch];
    float g[kBatch];
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const bool there = first + u < l.n;
      row[u] = there ? static_cast<int64_t>(index[(first + u) * l.index_along]) : -1;
      g[u] = there ? load_one(grad + (first + u) * l.in_along) : 0.0f;
    }
#pragma unroll
    for (int u = 0; u < kBatch; ++u)
      if (row[u] >= first_row && row[u] < end_row) dx[row[u] * l.out_along] += g[u];
  }
}

// The same with one index for all lanes: the block collects the places that fall into its range, in their order, and
// its threads then add them lane by lane, a batch of places at a time: gradients and the rows they go to are fetched
// together, and a row that comes again in the batch is added to where it came first.
template <class T, class I>
__global__ void __launch_bounds__(kThreads) shared_index_kernel(Lanes l, const T* grad, const I* index, float* dx) {
  constexpr int kRounds = 4, kTile = kThreads * kRounds, kBatch = 8, kWarps = kThreads / kWarp;
  static_assert(kRounds * kWarps == kWarp);  // one count a lane of a warp
  __shared__ int counts[kWarp];
  __shared__ int place[kTile];
  __shared__ int target[kTile];  // from first_row on
  const int64_t lane = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool busy = lane < l.count;
  const int64_t first_row = blockIdx.y * l.rows_of_range;
  const int64_t end_row = first_row + l.rows_of_range < l.rows ? first_row + l.rows_of_range : l.rows;
  if (busy) grad += offset_of(l.size, l.in, lane), dx += offset_of(l.size, l.out, lane) + first_row * l.out_along;
  const int warp = threadIdx.x / kWarp, in_warp = threadIdx.x % kWarp;
  for (int64_t start = 0; start < l.n; start += kTile) {
    int64_t row[kRounds];
    unsigned hits[kRounds];
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int64_t j = start + r * kThreads + threadIdx.x;
      row[r] = j < l.n ? static_cast<int64_t>(index[j * l.index_along]) : -1;
    }
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      hits[r] = __ballot_sync(kAll, row[r] >= first_row && row[r] < end_row);
      if (in_warp == 0) counts[r * kWarps + warp] = __popc(hits[r]);
    }
    __syncthreads();
    int before = counts[in_warp];  // becomes the count of all groups up to this one
#pragma unroll
    for (int w = 1; w < kWarp; w *= 2) {
      const int other = __shfl_up_sync(kAll, before, w);
      if (in_warp >= w) before += other;
    }
    const int total = __shfl_sync(kAll, before, kWarp - 1);
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int begin = __shfl_sync(kAll, before, r * kWarps + warp) - __popc(hits[r]);
      if (hits[r] >> in_warp & 1) {
        const int at = begin + __popc(hits[r] & ((1u << in_warp) - 1));
        place[at] = r * kThreads + static_cast<int>(threadIdx.x);
        target[at] = static_cast<int>(row[r] - first_row);
      }
    }
    __syncthreads();
    for (int first = 0; busy && first < total; first += kBatch) {
      int to[kBatch];
      float g[kBatch], sum[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const bool there = first + u < total;
        to[u] = there ? target[first + u] : -1;
        g[u] = there ? load_one(grad + (start + place[first + u]) * l.in_along) : 0.0f;
        sum[u] = there ? dx[to[u] * l.out_along] : 0.0f;
      }
      bool again[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        again[u] = false;
#pragma unroll
        for (int v = 0; v < u; ++v) {
          const bool here = to[v] == to[u] && !again[u];
          if (here) sum[v] += g[u];
          again[u] = again[u] || here;
        }
        sum[u] += g[u];
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u)
        if (to[u] >= 0 && !again[u]) dx[to[u] * l.out_along] = sum[u];
    }
    __syncthreads();  // before the next tile overwrites the lists
  }
}

}  // namespace

void gather(const GatherArgs& a) {
  if (a.out.numel() == 0) return;
  Plan p = plan_of(a.x, a.index, a.out, a.axis);
  const int64_t item = item_size(a.x.dtype), piece = piece_of(p, a.x.data, a.out.data, item);
  if (piece > item) {
    const int last = p.size.rank - 1;
    p.size[last] = p.size[last] * item / piece;
    for (int axis = 0; axis < last; ++axis)
      p.x[axis] = p.x[axis] * item / piece, p.out[axis] = p.out[axis] * item / piece;
  }
  with_piece(piece, [&](auto item_tag) { launch_gather<decltype(item_tag)>(a, p); });
}

void gather_backward(const GatherBackwardArgs& a) {
  const int64_t numel = a.dx.numel();
  if (numel == 0) return;
  const cudaStream_t stream = stream_of(a.device());
  if (a.dx.dtype != DType::kF32) detail::wrong_dtype("gather_backward", static_cast<int>(a.dx.dtype));
  if (a.add) {  // onto what is there
  } else if (a.dx.contiguous()) {
    check_cuda("gather_backward", cudaMemsetAsync(a.dx.data, 0, static_cast<size_t>(numel) * sizeof(float), stream));
  } else {
    zero_kernel<<<blocks_for(numel, kThreads), kThreads, 0, stream>>>(a.dx, numel);
    check_launch("gather_backward");
  }
  if (a.grad.numel() == 0) return;
  Lanes l = lanes_of(a.grad, a.index, a.dx, a.axis);
  bool shared = l.n > kThreads;  // a list pays from some length on
  for (int i = 0; i < l.size.rank; ++i) shared = shared && (l.index[i] == 0 || l.size[i] == 1);
  // Ranges so that the card is full; every one reads the whole index, so short lists have few.
  const int64_t tiles = parts(l.count, kThreads);
  int64_t ranges = kBlocks / tiles;
  if (ranges > l.n / 64) ranges = l.n / 64;
  if (ranges > l.rows) ranges = l.rows;
  if (ranges < 1) ranges = 1;
  l.rows_of_range = parts(l.rows, ranges);
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(parts(l.rows, l.rows_of_range)));
  with_float("gather_backward", a.grad.dtype, [&](auto tag) {
    with_index("gather_backward", a.index.dtype, [&](auto index_tag) {
      using T = decltype(tag);
      using I = decltype(index_tag);
      const auto kernel = shared ? shared_index_kernel<T, I> : lane_kernel<T, I>;
      kernel<<<grid, kThreads, 0, stream>>>(l, a.grad.ptr<T>(), a.index.ptr<I>(), a.dx.ptr<float>());
      check_launch("gather_backward");
    });
  });
}

}  // namespace tally::cuda
