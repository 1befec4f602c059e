// Scatter on the CPU: every lane along the axis belongs to one thread, which takes the index in order, so that the
// result does not depend on threads. Bits are moved; integers of all signs add as unsigned ones.
#include "tally/ops/scatter_kernels.h"

#include "tally/base/parallel.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int64_t kColumns = 512;  // of a task
constexpr int64_t kGrain = 16384;  // elements

// Where the plane begins: `plane` counts all axes but the last and the scattered one.
int64_t plane_offset(const View& v, const Dims& size, int axis, int64_t plane) {
  int64_t at = 0;
  for (int i = size.rank - 2; i >= 0; --i) {
    if (i == axis) continue;
    at += plane % size.v[i] * v.stride.v[i];
    plane /= size.v[i];
  }
  return at;
}

template <class T, class I>
void scatter_as(const ScatterArgs& a) {
  const Dims& size = a.src.size;
  const int last = size.rank - 1;
  const bool own = a.axis == last;  // the lane is the last axis itself
  const int64_t n = size.v[a.axis], width = own ? 1 : size.v[last];
  const int64_t tasks = (width + kColumns - 1) / kColumns;
  int64_t planes = 1;
  for (int i = 0; i < last; ++i)
    if (i != a.axis) planes *= size.v[i];
  const int64_t src_step = a.src.stride.v[last], index_step = a.index.stride.v[last], out_step = a.out.stride.v[last];
  const int64_t src_along = a.src.stride.v[a.axis], index_along = a.index.stride.v[a.axis];
  const int64_t out_along = a.out.stride.v[a.axis];
  const int64_t work = n * (width < kColumns ? width : kColumns);
  parallel_for(planes * tasks, work > 0 ? (kGrain + work - 1) / work : kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t plane = task / tasks, first = own ? 0 : task % tasks * kColumns;
      const int64_t count = width - first < kColumns ? width - first : kColumns;
      const T* src = a.src.ptr<T>() + plane_offset(a.src, size, a.axis, plane) + first * src_step;
      const I* at = a.index.ptr<I>() + plane_offset(a.index, size, a.axis, plane) + first * index_step;
      T* out = a.out.ptr<T>() + plane_offset(a.out, size, a.axis, plane) + first * out_step;
      if (own && a.add) {
        for (int64_t j = 0; j < n; ++j) {
          T* to = out + at[j * index_along] * out_along;
          *to = static_cast<T>(*to + src[j * src_along]);
        }
        continue;
      }
      if (own) {
        for (int64_t j = 0; j < n; ++j) out[at[j * index_along] * out_along] = src[j * src_along];
        continue;
      }
      for (int64_t j = 0; j < n; ++j)
        for (int64_t i = 0; i < count; ++i) {
          T* to = out + at[j * index_along + i * index_step] * out_along + i * out_step;
          const T value = src[j * src_along + i * src_step];
          *to = static_cast<T>(a.add ? *to + value : value);
        }
    }
  });
}

template <class T>
void scatter_bits(const ScatterArgs& a) {
  a.index.dtype == DType::kI64 ? scatter_as<T, int64_t>(a) : scatter_as<T, int32_t>(a);
}

}  // namespace

void scatter(const ScatterArgs& a) {
  if (a.src.numel() == 0) return;
  switch (item_size(a.out.dtype)) {
    case 8:
      return scatter_bits<uint64_t>(a);
    case 4:
      return scatter_bits<uint32_t>(a);
    case 2:
      return scatter_bits<uint16_t>(a);
    default:
      return scatter_bits<uint8_t>(a);
  }
}

}  // namespace tally::TALLY_ISA
