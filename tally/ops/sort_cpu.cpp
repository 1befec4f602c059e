// Sorting on the CPU. An element becomes an item: a key of 32 or 64 bits in the order of the numbers (order_keys.h)
// and its place, so that no two items are equal and the result is one whatever the method. Short rows are sorted by
// insertion, others by radix from the lowest digit on (Knuth, TAOCP 3, 5.2.5; stable), leaving out digits that are all
// equal. Threads share rows; of a long row they count and move chunks, whose places follow from the counts of the
// chunks before. topk keeps the items better than the k-th so far and throws the others away when its room is full.
#include <algorithm>

#include "tally/ops/row_loops.h"
#include "tally/ops/sort_kernels.h"

namespace tally::TALLY_ISA {

namespace {

struct Narrow {  // key above, place below
  using Key = uint32_t;
  uint64_t bits;
  TALLY_INLINE static Narrow make(uint32_t key, int64_t place) {
    return {uint64_t{key} << 32 | static_cast<uint32_t>(place)};
  }
  TALLY_INLINE uint32_t key() const { return static_cast<uint32_t>(bits >> 32); }
  TALLY_INLINE int64_t place() const { return static_cast<uint32_t>(bits); }
  TALLY_INLINE bool operator<(Narrow o) const { return bits < o.bits; }
};
struct Wide {
  using Key = uint64_t;
  uint64_t bits;
  int64_t at;
  TALLY_INLINE static Wide make(uint64_t key, int64_t place) { return {key, place}; }
  TALLY_INLINE uint64_t key() const { return bits; }
  TALLY_INLINE int64_t place() const { return at; }
  TALLY_INLINE bool operator<(const Wide& o) const { return bits < o.bits || (bits == o.bits && at < o.at); }
};

// f(i, key) for elements [begin, end) of the row at offset `at`; the wanted order is that of the keys.
template <class Key, class F>
TALLY_INLINE void over_keys(const View& v, int64_t at, int64_t step, int64_t begin, int64_t end, bool flip,
                            const F& f) {
  with_ordered(v.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* p = v.ptr<T>() + at;
    const Key mask = flip ? static_cast<Key>(~Key{0}) : Key{0};
    if (step == 1) {
      for (int64_t i = begin; i < end; ++i) f(i, static_cast<Key>(static_cast<Key>(order_key(p[i])) ^ mask));
    } else {
      for (int64_t i = begin; i < end; ++i) f(i, static_cast<Key>(static_cast<Key>(order_key(p[i * step])) ^ mask));
    }
  });
}
template <class Item>
void make_items(const View& v, int64_t at, int64_t step, int64_t begin, int64_t end, bool flip, Item* items) {
  over_keys<typename Item::Key>(
      v, at, step, begin, end,
      flip, [&](int64_t i, typename Item::Key key) __attribute__((always_inline)) { items[i] = Item::make(key, i); });
}

// Items [begin, end) as results of a row.
struct Target {
  const View &x, &values, &indices;
  int64_t x_at, values_at, indices_at;
  int64_t x_step, values_step, indices_step;
};
template <class Bits, class Item>
TALLY_INLINE void write_items(const Target& t, const Item* items, int64_t begin, int64_t end) {
  const Bits* x = t.x.ptr<Bits>() + t.x_at;
  Bits* values = t.values.ptr<Bits>() + t.values_at;
  int64_t* indices = t.indices.ptr<int64_t>() + t.indices_at;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t place = items[i].place();
    indices[i * t.indices_step] = place;
    values[i * t.values_step] = x[place * t.x_step];
  }
}
template <class Item>
void write(const Target& t, const Item* items, int64_t begin, int64_t end) {
  switch (item_size(t.x.dtype)) {
    case 8:
      return write_items<uint64_t>(t, items, begin, end);
    case 4:
      return write_items<uint32_t>(t, items, begin, end);
    case 2:
      return write_items<uint16_t>(t, items, begin, end);
    default:
      return write_items<uint8_t>(t, items, begin, end);
  }
}

// ---- one row by one thread

template <class Item>
void insertion_sort(Item* items, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    const Item item = items[i];
    int64_t j = i;
    for (; j > 0 && item < items[j - 1]; --j) items[j] = items[j - 1];
    items[j] = item;
  }
}

// Sorts the n items at a; the result is at a or b.
template <class Item, int kBits>
Item* radix_sort(Item* a, Item* b, int64_t n) {
  using Key = typename Item::Key;
  constexpr int kDigits = 1 << kBits, kPasses = (8 * static_cast<int>(sizeof(Key)) + kBits - 1) / kBits;
  uint32_t counts[kPasses][kDigits] = {};
  for (int64_t i = 0; i < n; ++i) {
    const Key key = a[i].key();
    for (int pass = 0; pass < kPasses; ++pass) ++counts[pass][key >> (pass * kBits) & (kDigits - 1)];
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    uint32_t* count = counts[pass];
    if (count[a[0].key() >> (pass * kBits) & (kDigits - 1)] == n) continue;  // all equal
    uint32_t before = 0;
    for (int d = 0; d < kDigits; ++d) {
      const uint32_t here = count[d];
      count[d] = before;
      before += here;
    }
    for (int64_t i = 0; i < n; ++i) b[count[a[i].key() >> (pass * kBits) & (kDigits - 1)]++] = a[i];
    std::swap(a, b);
  }
  return a;
}

template <class Item>
Item* sort_items(Item* a, Item* b, int64_t n) {
  if (n <= 40) return insertion_sort(a, n), a;
  return n < 8192 ? radix_sort<Item, 8>(a, b, n) : radix_sort<Item, 11>(a, b, n);
}

// ---- one long row by all threads

template <class Item>
void sort_long(const Target& t, int64_t n, bool flip, Item* a, Item* b, int64_t* counts) {
  using Key = typename Item::Key;
  constexpr int kBits = 11, kPasses = (8 * static_cast<int>(sizeof(Key)) + kBits - 1) / kBits;
  static_assert(1 << kBits == kSortDigits);
  const int64_t chunks = (n + kSortChunk - 1) / kSortChunk;
  const auto over_chunks = [&](const auto& f) {
    parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
      for (int64_t c = first; c < last; ++c) f(c, c * kSortChunk, c + 1 < chunks ? (c + 1) * kSortChunk : n);
    });
  };
  over_chunks([&](int64_t, int64_t begin, int64_t end) { make_items(t.x, t.x_at, t.x_step, begin, end, flip, a); });
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto digit = [&](const Item& item) { return item.key() >> (pass * kBits) & (kSortDigits - 1); };
    over_chunks([&](int64_t c, int64_t begin, int64_t end) {
      int64_t* count = counts + c * kSortDigits;
      std::fill(count, count + kSortDigits, 0);
      for (int64_t i = begin; i < end; ++i) ++count[digit(a[i])];
    });
    int64_t before = 0;
    bool equal = false;
    for (int64_t d = 0; d < kSortDigits; ++d) {
      const int64_t start = before;
      for (int64_t c = 0; c < chunks; ++c) {
        const int64_t here = counts[c * kSortDigits + d];
        counts[c * kSortDigits + d] = before;
        before += here;
      }
      equal = equal || before - start == n;
    }
    if (equal) continue;
    over_chunks([&](int64_t c, int64_t begin, int64_t end) {
      int64_t* count = counts + c * kSortDigits;
      for (int64_t i = begin; i < end; ++i) b[count[digit(a[i])]++] = a[i];
    });
    std::swap(a, b);
  }
  over_chunks([&](int64_t, int64_t begin, int64_t end) { write(t, a, begin, end); });
}

// ---- all rows

// The views without movement along the axis, as rows of all other axes.
struct Lanes {
  View x, values, indices;
  int64_t rows;
};
View lane_of(const View& v, int axis) {
  View lane = v;  // a last axis of size 1: row_offset() leaves out the last one
  lane.size.v[axis] = 1;
  if (lane.size.rank < kMaxRank) {
    lane.size.v[lane.size.rank++] = 1;
    lane.stride.rank = lane.size.rank;
    return lane;
  }
  // All axes in use: the sorted one makes room, as it has size 1.
  for (int i = axis; i + 1 < lane.size.rank; ++i)
    lane.size.v[i] = lane.size.v[i + 1], lane.stride.v[i] = lane.stride.v[i + 1];
  lane.size.v[lane.size.rank - 1] = 1;
  return lane;
}
template <class A>
Lanes lanes_of(const A& a) {
  return {lane_of(a.x, a.axis), lane_of(a.values, a.axis), lane_of(a.indices, a.axis), rows_beside(a.x, a.axis)};
}
template <class A>
Target target_of_row(const A& a, const Lanes& l, int64_t row) {
  return {a.x,
          a.values,
          a.indices,
          row_offset(l.x, row),
          row_offset(l.values, row),
          row_offset(l.indices, row),
          a.x.stride.v[a.axis],
          a.values.stride.v[a.axis],
          a.indices.stride.v[a.axis]};
}

// f(row, slot) for all rows; a slot has one row at a time.
template <class F>
void over_slots(int64_t rows, int64_t slots, const F& f) {
  parallel_for(slots, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot)
      for (int64_t row = slot; row < rows; row += slots) f(row, slot);
  });
}

template <class Item>
void sort_rows(const SortArgs& a) {
  const int64_t n = a.x.size.v[a.axis];
  const Lanes lanes = lanes_of(a);
  Item* items = a.scratch.ptr<Item>();
  if (n >= kLongRow) {
    for (int64_t row = 0; row < lanes.rows; ++row)
      sort_long(target_of_row(a, lanes, row), n, a.descending, items, items + n,
                reinterpret_cast<int64_t*>(items + 2 * n));
    return;
  }
  over_slots(lanes.rows, sort_rows_at_once(lanes.rows, n, DeviceKind::kCpu), [&](int64_t row, int64_t slot) {
    const Target t = target_of_row(a, lanes, row);
    Item *from = items + slot * 2 * n, *to = from + n;
    make_items(t.x, t.x_at, t.x_step, 0, n, a.descending, from);
    write(t, sort_items(from, to, n), 0, n);
  });
}

// ---- topk

// Brings the k first of `count` items to the front, in no order.
template <class Item>
void keep_first(Item* items, int64_t k, int64_t count) {
  if (count > k) std::nth_element(items, items + (k - 1), items + count);
}

// The k first items of elements [begin, end), in no order, at `room`; fewer when there are not as many.
template <class Item>
int64_t select(const Target& t, int64_t begin, int64_t end, bool flip, int64_t k, Item* room) {
  using Key = typename Item::Key;
  constexpr int64_t kStep = 64;
  int64_t count = 0;
  const int64_t most = select_room(k);
  bool full = false;
  Key worst = 0;  // of the k best so far; a later equal one is not better
  for (int64_t start = begin; start < end; start += kStep) {
    const int64_t m = end - start < kStep ? end - start : kStep;
    Key keys[kStep];
    over_keys<Key>(
        t.x, t.x_at, t.x_step, start, start + m,
        flip, [&](int64_t i, Key key) __attribute__((always_inline)) { keys[i - start] = key; });
    int any = !full;
    for (int64_t i = 0; i < m; ++i) any |= keys[i] < worst;
    if (!any) continue;
    for (int64_t i = 0; i < m; ++i) {
      if (full && keys[i] >= worst) continue;
      room[count++] = Item::make(keys[i], start + i);
      if (count < most) continue;
      keep_first(room, k, count);
      count = k, full = true, worst = room[k - 1].key();
    }
  }
  keep_first(room, k, count);
  return count < k ? count : k;
}

template <class Item>
void topk_rows(const TopkArgs& a) {
  const int64_t n = a.x.size.v[a.axis], k = a.values.size.v[a.axis], room = select_room(k);
  const Lanes lanes = lanes_of(a);
  Item* items = a.scratch.ptr<Item>();
  const int64_t pieces = select_pieces(lanes.rows, n);
  if (pieces == 1) {
    over_slots(lanes.rows, lanes.rows < kSortSlots ? lanes.rows : kSortSlots, [&](int64_t row, int64_t slot) {
      const Target t = target_of_row(a, lanes, row);
      Item* own = items + slot * room;
      select(t, 0, n, a.largest, k, own);
      std::sort(own, own + k);
      write(t, own, 0, k);
    });
    return;
  }
  const int64_t piece = (n + pieces - 1) / pieces;
  for (int64_t row = 0; row < lanes.rows; ++row) {
    const Target t = target_of_row(a, lanes, row);
    int64_t counts[16];
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t last = (p + 1) * piece < n ? (p + 1) * piece : n;
        counts[p] = select(t, p * piece, last, a.largest, k, items + p * room);
      }
    });
    int64_t all = counts[0];
    for (int64_t p = 1; p < pieces; ++p) {
      std::copy(items + p * room, items + p * room + counts[p], items + all);
      all += counts[p];
    }
    keep_first(items, k, all);
    std::sort(items, items + k);
    write(t, items, 0, k);
  }
}

}  // namespace

void sort(const SortArgs& a) {
  if (a.x.numel() == 0) return;
  if (sort_item(a.x.dtype, a.x.size.v[a.axis], DeviceKind::kCpu) == 8) {
    sort_rows<Narrow>(a);
  } else {
    sort_rows<Wide>(a);
  }
}

void topk(const TopkArgs& a) {
  if (a.values.numel() == 0) return;
  if (sort_item(a.x.dtype, a.x.size.v[a.axis], DeviceKind::kCpu) == 8) {
    topk_rows<Narrow>(a);
  } else {
    topk_rows<Wide>(a);
  }
}

}  // namespace tally::TALLY_ISA
