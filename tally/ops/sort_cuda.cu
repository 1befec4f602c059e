// Sorting on CUDA. An element becomes an item of 16 bytes: its key (order_keys.h) and its place, so that no two items
// are equal and the result is one. A row of up to 2048 items is sorted by a block in shared memory (bitonic: Batcher
// 1968); longer rows are cut into such tiles, which are merged in pairs until one is left: the place of an item in the
// merged run is its own number plus the number of smaller ones in the other run, by binary search. topk finds the k-th
// key of a row digit by digit with counts in shared memory, collects the k first items and sorts them there.
#include "tally/ops/device_rows.cuh"
#include "tally/ops/sort_kernels.h"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 20;

struct Item {
  unsigned long long key;
  long long place;
};
__device__ __forceinline__ bool before(const Item& a, const Item& b) {
  return a.key < b.key || (a.key == b.key && a.place < b.place);
}
constexpr Item kLast = {~0ull, 0x7FFFFFFFFFFFFFFFll};

struct Rows3 {  // the axis of x, values and indices, and all others
  const void* x;
  void* values;
  int64_t* indices;
  Space x_at, values_at, indices_at;
  int64_t rows, n, k;  // k: results of a row
  int64_t along_x, along_values, along_indices;
  bool flip;  // from the largest on
};

template <class A>
Rows3 rows_of_axis(const A& a, bool flip) {
  const unsigned others = ~(1u << a.axis);
  return {a.x.data,
          a.values.data,
          a.indices.template ptr<int64_t>(),
          space_of(a.x, others),
          space_of(a.values, others),
          space_of(a.indices, others),
          rows_beside(a.x, a.axis),
          a.x.size.v[a.axis],
          a.values.size.v[a.axis],
          a.x.stride.v[a.axis],
          a.values.stride.v[a.axis],
          a.indices.stride.v[a.axis],
          flip};
}

template <class T>
__device__ __forceinline__ auto key_at(const T* x, bool flip) {
  const auto key = order_key(*x);
  return flip ? static_cast<decltype(order_key(T{}))>(~key) : key;
}
template <class T>
__device__ __forceinline__ void write_item(const Rows3& a, int64_t row, int64_t i, long long place) {
  const T* x = static_cast<const T*>(a.x) + offset_in(a.x_at, row);
  static_cast<T*>(a.values)[offset_in(a.values_at, row) + i * a.along_values] = x[place * a.along_x];
  a.indices[offset_in(a.indices_at, row) + i * a.along_indices] = place;
}

// Sorts `count` items, a power of 2, in shared memory by all threads.
__device__ void bitonic_sort(Item* items, int count) {
  for (int size = 2; size <= count; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int t = static_cast<int>(threadIdx.x); t < count / 2; t += kThreads) {
        const int i = t / step * (2 * step) + t % step, j = i + step;
        const bool up = (i & size) == 0;
        const Item a = items[i], b = items[j];
        if (before(b, a) == up) items[i] = b, items[j] = a;
      }
    }
  }
  __syncthreads();
}

// Tiles of kSortTile elements of rows [first, first + rows); the results, or to `out` (rows, n) as items.
template <class T>
__global__ void __launch_bounds__(kThreads)
    tile_kernel(const __grid_constant__ Rows3 a, int64_t first, int64_t rows, int count, Item* out) {
  extern __shared__ Item items[];
  let_next_start();
  wait_for_previous();
  const int64_t tiles = (a.n + kSortTile - 1) / kSortTile;
  for (int64_t tile = blockIdx.x; tile < rows * tiles; tile += gridDim.x) {
    const int64_t row = tile / tiles, begin = tile % tiles * kSortTile;
    const int valid = static_cast<int>(a.n - begin < kSortTile ? a.n - begin : kSortTile);
    const T* x = static_cast<const T*>(a.x) + offset_in(a.x_at, first + row);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads)
      items[i] = i < valid ? Item{key_at(x + (begin + i) * a.along_x, a.flip), begin + i} : kLast;
    bitonic_sort(items, count);
    for (int i = static_cast<int>(threadIdx.x); i < valid; i += kThreads) {
      if (out != nullptr) {
        out[row * a.n + begin + i] = items[i];
      } else {
        write_item<T>(a, first + row, i, items[i].place);
      }
    }
    __syncthreads();  // before the items are written again
  }
}

// Runs of `width` sorted items in rows of n are merged in pairs.
__global__ void __launch_bounds__(kThreads)
    merge_kernel(const Item* from, Item* to, int64_t rows, int64_t n, int64_t width) {
  let_next_start();
  wait_for_previous();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < rows * n; k += step) {
    const int64_t row = k / n, i = k - row * n, run = i / width, base = run / 2 * (2 * width);
    const Item* items = from + row * n;
    const Item own = items[i];
    // The other run's items before this one.
    int64_t low = run % 2 == 0 ? base + width : base, high = run % 2 == 0 ? base + 2 * width : base + width;
    low = min(low, n), high = min(high, n);
    const int64_t start = low;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (before(items[middle], own)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    to[row * n + base + (i - run * width) + (low - start)] = own;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    write_kernel(const __grid_constant__ Rows3 a, int64_t first, int64_t rows, const Item* items) {
  let_next_start();
  wait_for_previous();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < rows * a.n; k += step)
    write_item<T>(a, first + k / a.n, k % a.n, items[k].place);
}

// ---- topk

// The first threshold's digit whose count, with those of the digits before, reaches `wanted`.
struct Digit {
  int digit;
  long long before;  // elements of smaller digits
};
__device__ Digit find_digit(const unsigned long long* counts, long long wanted) {
  long long sum = 0;
  for (int d = 0; d < 256; ++d) {
    const long long here = static_cast<long long>(counts[d]);
    if (sum + here >= wanted) return {d, sum};
    sum += here;
  }
  return {255, sum};
}

// A block has a row. `count`: k rounded up to a power of 2.
template <class T>
__global__ void __launch_bounds__(kThreads) topk_kernel(const __grid_constant__ Rows3 a, int count) {
  using Key = decltype(order_key(T{}));
  constexpr int kBits = 8 * static_cast<int>(sizeof(Key)), kWarps = kThreads / kWarp;
  extern __shared__ Item items[];
  __shared__ unsigned long long counts[256];
  __shared__ Digit found;
  __shared__ int taken, ties[kWarps];
  let_next_start();
  wait_for_previous();
  const int t = static_cast<int>(threadIdx.x), lane = t % kWarp, warp = t / kWarp;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(a.x) + offset_in(a.x_at, row);
    Key threshold = 0;
    long long wanted = a.k;  // of elements that share the digits so far
    for (int shift = kBits - 8; shift >= 0; shift -= 8) {
      counts[t] = 0;
      __syncthreads();
      for (int64_t i = t; i < a.n; i += kThreads) {
        const Key key = key_at(x + i * a.along_x, a.flip);
        const bool same = shift + 8 >= kBits || key >> (shift + 8) == threshold >> (shift + 8);
        if (same) atomicAdd(&counts[key >> shift & 255], 1ull);
      }
      __syncthreads();
      if (t == 0) found = find_digit(counts, wanted);
      __syncthreads();
      threshold |= static_cast<Key>(found.digit) << shift;
      wanted -= found.before;
      __syncthreads();
    }
    // All smaller keys, and of the equal ones the first `wanted`.
    if (t == 0) taken = 0;
    __syncthreads();
    long long equal = 0;  // before this tile
    const int smaller = static_cast<int>(a.k - wanted);
    for (int64_t start = 0; start < a.n; start += kThreads) {
      const int64_t i = start + t;
      const Key key = i < a.n ? key_at(x + i * a.along_x, a.flip) : Key{0};
      if (i < a.n && key < threshold) items[atomicAdd(&taken, 1)] = {key, i};  // they are sorted below
      const unsigned hits = __ballot_sync(kAll, i < a.n && key == threshold);
      if (lane == 0) ties[warp] = __popc(hits);
      __syncthreads();
      long long rank = equal + __popc(hits & ((1u << lane) - 1));
      for (int w = 0; w < kWarps; ++w) {
        if (w < warp) rank += ties[w];
        equal += ties[w];
      }
      if ((hits >> lane & 1u) && rank < wanted) items[smaller + rank] = {key, i};
      __syncthreads();
    }
    for (int i = static_cast<int>(a.k) + t; i < count; i += kThreads) items[i] = kLast;
    bitonic_sort(items, count);
    for (int i = t; i < a.k; i += kThreads) write_item<T>(a, row, i, items[i].place);
    __syncthreads();  // before the items are written again
  }
}

int power_of_two(int64_t n) {
  int p = 2;
  while (p < n) p *= 2;
  return p;
}

}  // namespace

void sort(const SortArgs& a) {
  if (a.x.numel() == 0) return;
  const Rows3 r = rows_of_axis(a, a.descending);
  const Device device = a.device();
  const int count = power_of_two(r.n < kSortTile ? r.n : kSortTile), bytes = count * static_cast<int>(sizeof(Item));
  with_ordered(a.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (r.n <= kSortTile) {
      const Item* none = nullptr;
      return launch_after(SortArgs::name, tile_kernel<T>, {blocks_for(r.rows, 1, kMostBlocks), kThreads, bytes}, device,
                          r, int64_t{0}, r.rows, count, const_cast<Item*>(none));
    }
    const int64_t at_once = sort_rows_at_once(r.rows, r.n, DeviceKind::kCuda);
    Item* const items = a.scratch.ptr<Item>();
    for (int64_t first = 0; first < r.rows; first += at_once) {
      const int64_t rows = r.rows - first < at_once ? r.rows - first : at_once;
      Item *from = items, *to = items + at_once * r.n;
      launch_after(SortArgs::name, tile_kernel<T>,
                   {blocks_for(rows * parts(r.n, kSortTile), 1, kMostBlocks), kThreads, bytes}, device, r, first, rows,
                   count, from);
      const unsigned blocks = blocks_for(rows * r.n, kThreads, kMostBlocks);
      for (int64_t width = kSortTile; width < r.n; width *= 2) {
        launch_after(SortArgs::name, merge_kernel, {blocks, kThreads}, device, static_cast<const Item*>(from), to, rows,
                     r.n, width);
        Item* const swap = from;
        from = to, to = swap;
      }
      launch_after(SortArgs::name, write_kernel<T>, {blocks, kThreads}, device, r, first, rows,
                   static_cast<const Item*>(from));
    }
  });
}

void topk(const TopkArgs& a) {
  if (a.values.numel() == 0) return;
  const Rows3 r = rows_of_axis(a, a.largest);
  const int count = power_of_two(r.k);
  with_ordered(a.x.dtype, [&](auto tag) {
    launch_after(TopkArgs::name, topk_kernel<decltype(tag)>,
                 {blocks_for(r.rows, 1, kMostBlocks), kThreads, count * static_cast<int>(sizeof(Item))}, a.device(), r,
                 count);
  });
}

}  // namespace tally::cuda
