// Embedding on CUDA. Forward: rows are moved in the largest pieces, up to 16 bytes, that their alignment allows.
// Backward, in launches that follow each other on the stream:
//   1. a stable radix sort of (id, position), nine bits a pass: a histogram of every block's keys, then each block
//   finds
//      where its keys go from all histograms and moves them in order;
//   2. a binary search a row of the table for where its positions begin, which also lists rows with many of them;
//   3. sums. A row of up to kHot positions is summed by a warp in their order; a longer list by blocks of 32 groups of
//      threads, group g taking every 32nd position from the g-th on, the groups joined in order. Either way the order
//      depends on the length of the list only.
// An id outside the table reads nothing and is reported (core/fault.h): its row of the output is ones (NaN), its
// gradient is dropped.
#include "tally/ops/embedding_kernels.h"

#include "tally/ops/pieces.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;

// ---- forward

constexpr int kItems = 2;  // of a thread in flight

// A table and an output in pieces of sizeof(Item) bytes; `columns` pieces a row.
struct Rows {
  int64_t n, columns, table_rows, panel;  // panel: rows that lie interleaved, 1 in a plain table
  int64_t table_stride, table_step, out_stride, out_step;
};

template <class Item, class I>
__global__ void __launch_bounds__(kThreads, 4)
    embedding_kernel(Rows r, const I* ids, const Item* table, Item* out, FaultReport report) {
  let_next_start();
  wait_for_previous();
  const int64_t numel = r.n * r.columns, step = int64_t{gridDim.x} * kThreads;
  for (int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x; first < numel; first += step * kItems) {
    int64_t row[kItems], column[kItems], id[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      const int64_t k = first + u * step;
      if (k >= numel) break;
      row[u] = k / r.columns, column[u] = k - row[u] * r.columns;
      id[u] = ids[row[u]];
    }
    Item item[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      if (first + u * step >= numel) break;
      item[u] = ones<Item>();
      if (!inside(id[u], r.table_rows, report)) continue;
      const int64_t panel = r.panel == 1 ? id[u] : id[u] / r.panel;
      item[u] = table[panel * r.table_stride + (id[u] - panel * r.panel) + column[u] * r.table_step];
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      if (first + u * step >= numel) break;
      out[row[u] * r.out_stride + column[u] * r.out_step] = item[u];
    }
  }
}

template <class Item>
void launch_embedding(const EmbeddingArgs& a, const Rows& r) {
  with_index("embedding", a.ids.dtype, [&](auto tag) {
    using I = decltype(tag);
    launch_after("embedding", embedding_kernel<Item, I>, {blocks_for(r.n * r.columns, kThreads), kThreads}, a.device(),
                 r, a.ids.ptr<I>(), a.table.ptr<Item>(), a.out.ptr<Item>(), fault_report("embedding", a.device()));
  });
}

// ---- backward: the sort

constexpr int kBits = 9, kBins = 1 << kBits, kSortThreads = 512, kSortWarps = kSortThreads / kWarp;
static_assert(kBins == EmbeddingSort::kBins && kBins == kSortThreads);  // one bin a thread
constexpr int kHot = EmbeddingSort::kHot;

template <class I>
struct Ids {
  const I* ids;
  int64_t rows;
  __device__ __forceinline__ uint32_t key(int64_t i) const {
    const int64_t id = ids[i];
    return static_cast<uint32_t>(static_cast<uint64_t>(id) < static_cast<uint64_t>(rows) ? id : rows);
  }
  __device__ __forceinline__ int32_t position(int64_t i) const { return static_cast<int32_t>(i); }
};

struct Pairs {
  int32_t *keys, *positions;
  __device__ __forceinline__ uint32_t key(int64_t i) const { return static_cast<uint32_t>(keys[i]); }
  __device__ __forceinline__ int32_t position(int64_t i) const { return positions[i]; }
};

struct Tiles {
  int64_t n, tile;  // keys in all and of a block, which is a multiple of kSortThreads
  int blocks, shift;
  int32_t *histograms, *hot_count;
};

template <class From>
__global__ void __launch_bounds__(kSortThreads) histogram_kernel(From from, Tiles t) {
  __shared__ int count[kBins];
  count[threadIdx.x] = 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) *t.hot_count = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * t.tile, end = begin + t.tile < t.n ? begin + t.tile : t.n;
  for (int64_t i = begin + threadIdx.x; i < end; i += kSortThreads)
    atomicAdd(&count[from.key(i) >> t.shift & (kBins - 1)], 1);
  __syncthreads();
  t.histograms[blockIdx.x * kBins + threadIdx.x] = count[threadIdx.x];
}

// f(i, mine, same) for the keys of a warp, 32 at a time and in order; `same` has the lanes of equal digits. All lanes
// call f, those beyond the end with mine = false.
template <class From, class F>
__device__ __forceinline__ void over_keys(const From& from, int64_t begin, int64_t end, int shift, const F& f) {
  for (int64_t first = begin; first < end; first += kWarp) {
    const int64_t i = first + threadIdx.x % kWarp;
    const uint32_t key = i < end ? from.key(i) : 0;
    const uint32_t digit = i < end ? key >> shift & (kBins - 1) : kBins;
    f(i, i < end, key, digit, __match_any_sync(kAll, digit));
  }
}

template <class From>
__global__ void __launch_bounds__(kSortThreads) scatter_kernel(From from, Tiles t, Pairs to) {
  __shared__ int at[kSortWarps][kBins];  // counts of a warp's keys by digit, then where its next key goes
  __shared__ int warp_sums[kSortWarps];
  const int bin = static_cast<int>(threadIdx.x), warp = bin / kWarp, lane = bin % kWarp;
  int total = 0, before = 0;  // keys with this digit; those of earlier blocks
#pragma unroll 8
  for (int b = 0; b < t.blocks; ++b) {
    const int count = t.histograms[b * kBins + bin];
    total += count;
    before += b < static_cast<int>(blockIdx.x) ? count : 0;
  }
  int scan = total;  // of all smaller digits and this one
#pragma unroll
  for (int w = 1; w < kWarp; w *= 2) {
    const int other = __shfl_up_sync(kAll, scan, w);
    if (lane >= w) scan += other;
  }
  if (lane == kWarp - 1) warp_sums[warp] = scan;
#pragma unroll
  for (int w = 0; w < kSortWarps; ++w) at[w][bin] = 0;
  __syncthreads();
  int base = scan - total + before;
  for (int w = 0; w < warp; ++w) base += warp_sums[w];

  const int64_t chunk = t.tile / kSortWarps, begin = blockIdx.x * t.tile + warp * chunk;
  const int64_t end = begin + chunk < t.n ? begin + chunk : t.n;
  over_keys(from, begin, end, t.shift, [&](int64_t, bool mine, uint32_t, uint32_t digit, unsigned same) {
    if (mine && lane == __ffs(same) - 1) at[warp][digit] += __popc(same);
    __syncwarp();
  });
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kSortWarps; ++w) {
    const int count = at[w][bin];
    at[w][bin] = base;
    base += count;
  }
  __syncthreads();
  over_keys(from, begin, end, t.shift, [&](int64_t i, bool mine, uint32_t key, uint32_t digit, unsigned same) {
    const int place = mine ? at[warp][digit] + __popc(same & ((1u << lane) - 1)) : 0;
    __syncwarp();
    if (mine && lane == __ffs(same) - 1) at[warp][digit] += __popc(same);
    __syncwarp();
    if (mine) to.keys[place] = static_cast<int32_t>(key), to.positions[place] = from.position(i);
  });
}

// begins[v] = how many keys are below v. The order of the hot list varies; no sum depends on it.
__global__ void __launch_bounds__(kThreads)
    begins_kernel(const int32_t* keys, int64_t n, int64_t rows, int32_t* begins, int32_t* hot_count, int32_t* hot) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t v = int64_t{blockIdx.x} * kThreads + threadIdx.x; v <= rows; v += step) {
    int64_t low = 0, high = n;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (keys[middle] < v) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    begins[v] = static_cast<int32_t>(low);
    if (v < rows && low + kHot < n && keys[low + kHot] == v) hot[atomicAdd(hot_count, 1)] = static_cast<int32_t>(v);
  }
}

// ---- backward: the sums

// kWidth numbers from p on: vectors, or one number.
template <int kWidth, class T>
__device__ __forceinline__ void load_wide(const T* p, float (&x)[kWidth]) {
  if constexpr (kWidth == 1) {
    x[0] = load_one(p);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; i += kVector<T>) load_vector(p + i, reinterpret_cast<float(&)[kVector<T>]>(x[i]));
  }
}
template <int kWidth, class T>
__device__ __forceinline__ void store_wide(T* p, const float (&x)[kWidth]) {
  if constexpr (kWidth == 1) {
    store_one(p, x[0]);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; i += kVector<T>)
      store_vector(p + i, reinterpret_cast<const float(&)[kVector<T>]>(x[i]));
  }
}

template <int kWidth>
__device__ __forceinline__ void add_to(float (&sum)[kWidth], const float (&x)[kWidth]) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sum[j] += x[j];
}

struct Sums {
  int64_t rows, columns;
  int64_t grad_stride, grad_step, table_stride, table_step;
  const int32_t *begins, *positions, *hot_count, *hot;
  unsigned hot_blocks;  // blocks 0 .. hot_blocks - 1 take hot rows only, the others the rest
  bool add;
};

constexpr int kAhead = 4;  // vectors of a thread in flight
constexpr int kGroupLanes = 8, kGroups = kThreads / kGroupLanes;

template <int kWidth, class G, class D>
__device__ __forceinline__ void sum_hot(const Sums& s, const G* grad, D* table,
                                        float (&shared)[kGroups][kGroupLanes * kWidth]) {
  constexpr int kColumns = kGroupLanes * kWidth;
  const int64_t tiles = (s.columns + kColumns - 1) / kColumns, items = *s.hot_count * tiles;
  const int group = threadIdx.x / kGroupLanes, lane = threadIdx.x % kGroupLanes;
  for (int64_t item = blockIdx.x; item < items; item += s.hot_blocks) {
    const int64_t which = item / tiles, start = (item - which * tiles) * kColumns, v = s.hot[which];
    const int64_t first = s.begins[v], last = s.begins[v + 1];
    const int64_t column = start + lane * kWidth;
    float total[kWidth] = {};
    if (column < s.columns) {
      for (int64_t p = first + group; p < last; p += kGroups * kAhead) {
        int64_t from[kAhead];
        float x[kAhead][kWidth];
#pragma unroll
        for (int u = 0; u < kAhead; ++u) from[u] = p + u * kGroups < last ? s.positions[p + u * kGroups] : 0;
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (p + u * kGroups < last) load_wide(grad + from[u] * s.grad_stride + column * s.grad_step, x[u]);
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (p + u * kGroups < last) add_to(total, x[u]);
      }
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) shared[group][lane * kWidth + j] = total[j];
    __syncthreads();
    const int64_t mine = start + threadIdx.x;
    if (threadIdx.x < kColumns && mine < s.columns) {
      float sum = shared[0][threadIdx.x];
#pragma unroll 8
      for (int g = 1; g < kGroups; ++g) sum += shared[g][threadIdx.x];
      D* const out = table + v * s.table_stride + mine * s.table_step;
      store_one(out, s.add ? load_one(out) + sum : sum);
    }
    __syncthreads();
  }
}

template <int kWidth, class G, class D>
__device__ __forceinline__ void sum_rows(const Sums& s, const G* grad, D* table) {
  constexpr int kColumns = kWarp * kWidth, kWarps = kThreads / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int64_t tiles = (s.columns + kColumns - 1) / kColumns, units = s.rows * tiles;
  const int64_t step = int64_t{gridDim.x - s.hot_blocks} * kWarps;
  for (int64_t unit = int64_t{blockIdx.x - s.hot_blocks} * kWarps + threadIdx.x / kWarp; unit < units; unit += step) {
    const int64_t v = unit / tiles, column = (unit - v * tiles) * kColumns + lane * kWidth;
    const int64_t first = s.begins[v], last = s.begins[v + 1];
    if (last - first > kHot || (s.add && first == last)) continue;  // the same for all lanes
    const bool busy = column < s.columns;
    float total[kWidth] = {};
    for (int64_t base = first; base < last; base += kWarp) {
      const int mine = base + lane < last ? s.positions[base + lane] : 0;
      const int count = static_cast<int>(last - base < kWarp ? last - base : kWarp);
      for (int k = 0; k < count; k += kAhead) {
        float x[kAhead][kWidth];
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
          const int64_t from = __shfl_sync(kAll, mine, k + u);
          if (busy && k + u < count) load_wide(grad + from * s.grad_stride + column * s.grad_step, x[u]);
        }
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (busy && k + u < count) add_to(total, x[u]);
      }
    }
    if (!busy) continue;
    D* const out = table + v * s.table_stride + column * s.table_step;
    if (s.add) {
      float there[kWidth];
      load_wide(out, there);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) total[j] = there[j] + total[j];
    }
    store_wide(out, total);
  }
}

template <int kWidth, class G, class D>
__global__ void __launch_bounds__(kThreads, kWidth == 1 ? 4 : 3) sum_kernel(Sums s, const G* grad, D* table) {
  __shared__ float shared[kGroups][kGroupLanes * kWidth];
  if (blockIdx.x < s.hot_blocks) {
    sum_hot<kWidth>(s, grad, table, shared);
  } else {
    sum_rows<kWidth>(s, grad, table);
  }
}

template <class From>
void sort_pass(const From& from, const Tiles& t, const Pairs& to, cudaStream_t stream) {
  histogram_kernel<<<static_cast<unsigned>(t.blocks), kSortThreads, 0, stream>>>(from, t);
  check_launch("embedding_backward");
  scatter_kernel<<<static_cast<unsigned>(t.blocks), kSortThreads, 0, stream>>>(from, t, to);
  check_launch("embedding_backward");
}

// Sorts; returns where the result is.
Pairs sorted_pairs(const View& ids, int64_t rows, Tiles t, const Pairs (&buffers)[2], cudaStream_t stream) {
  if (t.n == 0) return buffers[0];
  t.tile = parts(t.n, EmbeddingSort::kBlocks);
  t.tile = parts(t.tile < 1024 ? 1024 : t.tile, kSortThreads) * kSortThreads;
  t.blocks = static_cast<int>(parts(t.n, t.tile));
  with_index("embedding_backward", ids.dtype, [&](auto tag) {
    using I = decltype(tag);
    sort_pass(Ids<I>{ids.ptr<I>(), rows}, t, buffers[0], stream);
  });
  int at = 0;
  for (t.shift = kBits; rows >> t.shift != 0; t.shift += kBits, at = 1 - at)  // ids go to `rows` for those outside
    sort_pass(buffers[at], t, buffers[1 - at], stream);
  return buffers[at];
}

template <class G, class D>
void launch_sums(const EmbeddingBackwardArgs& a, const Sums& s, cudaStream_t stream) {
  constexpr int kWide = kVector < G >> kVector<D> ? kVector<G> : kVector<D>;
  const bool wide = s.grad_step == 1 && s.table_step == 1 && s.columns % kWide == 0 &&
                    aligned<G>(a.grad.data, s.grad_stride) && aligned<D>(a.dtable.data, s.table_stride);
  const int64_t units = s.rows * parts(s.columns, kWarp * (wide ? kWide : 1));
  const unsigned blocks = s.hot_blocks + blocks_for(units, kThreads / kWarp);
  const auto kernel = wide ? sum_kernel<kWide, G, D> : sum_kernel<1, G, D>;
  kernel<<<blocks, kThreads, 0, stream>>>(s, a.grad.ptr<G>(), a.dtable.ptr<D>());
  check_launch("embedding_backward");
}

}  // namespace

void embedding(const EmbeddingArgs& a) {
  const int64_t item = item_size(a.table.dtype);
  const bool packed = a.table.rank() == 3;
  Rows r{a.out.size[0],
         a.out.size[1],
         a.table.size[0] * (packed ? a.table.size[2] : 1),
         packed ? a.table.size[2] : 1,
         a.table.stride[0],
         a.table.stride[1],
         a.out.stride[0],
         a.out.stride[1]};
  if (r.n * r.columns == 0) return;
  int64_t piece = item;
  if (!packed && (r.columns == 1 || (r.table_step == 1 && r.out_step == 1))) {
    piece = largest_piece(reinterpret_cast<uintptr_t>(a.table.data) | reinterpret_cast<uintptr_t>(a.out.data) |
                          static_cast<uint64_t>(r.columns * item) | static_cast<uint64_t>(r.table_stride * item) |
                          static_cast<uint64_t>(r.out_stride * item));
    if (piece > item) {
      r.columns = r.columns * item / piece;
      r.table_stride = r.table_stride * item / piece, r.out_stride = r.out_stride * item / piece;
    }
  }
  with_piece(piece, [&](auto item_tag) { launch_embedding<decltype(item_tag)>(a, r); });
}

void embedding_backward(const EmbeddingBackwardArgs& a) {
  if (a.dtable.numel() == 0) return;
  const cudaStream_t stream = stream_of(a.device());
  const int64_t n = a.grad.size[0], rows = a.dtable.size[0];
  int32_t* const begins = a.scratch.ptr<int32_t>();
  int32_t* const pairs = begins + rows + 1;
  const Pairs buffers[2] = {{pairs, pairs + n}, {pairs + 2 * n, pairs + 3 * n}};
  int32_t* const histograms = pairs + 4 * n;
  int32_t* const hot_count = histograms + EmbeddingSort::kBins * EmbeddingSort::kBlocks;
  const Pairs sorted = sorted_pairs(a.ids, rows, Tiles{n, 0, 0, 0, histograms, hot_count}, buffers, stream);
  begins_kernel<<<blocks_for(rows + 1, kThreads), kThreads, 0, stream>>>(sorted.keys, n, rows, begins, hot_count,
                                                                         hot_count + 1);
  check_launch("embedding_backward");
  const Sums s{
      rows,   a.dtable.size[1], a.grad.stride[0], a.grad.stride[1], a.dtable.stride[0],       a.dtable.stride[1],
      begins, sorted.positions, hot_count,        hot_count + 1,    n > kHot ? 132u * 4 : 0u, a.add};
  with_float("embedding_backward", a.grad.dtype, [&](auto grad_tag) {
    with_float("embedding_backward", a.dtable.dtype,
               [&](auto tag) { launch_sums<decltype(grad_tag), decltype(tag)>(a, s, stream); });
  });
}

}  // namespace tally::cuda
