// Gather on the CPU by rows of the last axis; the backward gives every lane along the gathered axis to one thread, so
// sums are in the order of the index whatever the thread count.
#include "tally/ops/gather_kernels.h"
#include "tally/ops/row_loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

TALLY_INLINE int64_t index_at(const View& index, int64_t at) {
  return index.dtype == DType::kI64 ? index.ptr<int64_t>()[at] : index.ptr<int32_t>()[at];
}

template <class T, class I>
TALLY_INLINE void gather_row(const T* x, int64_t move, int64_t along, const I* index, int64_t index_step, int64_t n,
                             T* out, int64_t out_step) {
  if (move == 0 && along == 1 && index_step == 1 && out_step == 1) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[index[i]];
  } else {
    for (int64_t i = 0; i < n; ++i) out[i * out_step] = x[i * move + index[i * index_step] * along];
  }
}

template <class T>
TALLY_INLINE void fetch_row(const T* x, int64_t n) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(x + i);
}

template <class T>
void gather_rows(const GatherArgs& a) {
  const int last = a.out.size.rank - 1;
  const int64_t n = row_length(a.out), x_step = a.x.stride.v[last], out_step = a.out.stride.v[last];
  const int64_t index_step = a.index.stride.v[last], along = a.x.stride.v[a.axis];
  if (n == 0) return;
  View lane = a.x;  // x with out's sizes and no movement along the axis
  lane.size = a.out.size;
  lane.stride.v[a.axis] = 0;
  // Rows of x of which most lines are asked for are fetched while the row before is gathered: its order is no pattern.
  const int64_t rows = rows_of(a.out), lines = a.x.size.v[last] * static_cast<int64_t>(sizeof(T)) / 64;
  const bool fetch = a.axis == last && x_step == 1 && lines <= n && lines <= 256;
  parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = a.x.ptr<T>() + row_offset(lane, row);
      T* out = a.out.ptr<T>() + row_offset(a.out, row);
      const int64_t at = row_offset(a.index, row);
      if (a.axis != last && index_step == 0) {
        x += index_at(a.index, at) * along;
        if (x_step == 1 && out_step == 1) {
          __builtin_memcpy(out, x, static_cast<uint64_t>(n) * sizeof(T));
          continue;
        }
        for (int64_t i = 0; i < n; ++i) out[i * out_step] = x[i * x_step];
      } else {
        const int64_t move = a.axis == last ? 0 : x_step;
        if (fetch && row + 1 < rows) fetch_row(a.x.ptr<T>() + row_offset(lane, row + 1), a.x.size.v[last]);
        if (a.index.dtype == DType::kI64) {
          gather_row(x, move, along, a.index.ptr<int64_t>() + at, index_step, n, out, out_step);
        } else {
          gather_row(x, move, along, a.index.ptr<int32_t>() + at, index_step, n, out, out_step);
        }
      }
    }
  });
}

// A block of the gradient as the numbers it is summed in.
TALLY_INLINE const float* gradient_block(const View& v, int64_t at, int64_t n, float* buffer) {
  return block_in(v, at, v.stride.v[v.size.rank - 1], n, buffer);
}
TALLY_INLINE const double* gradient_block(const View& v, int64_t at, int64_t n, double* buffer) {
  for (int64_t i = 0; i < n; ++i) buffer[i] = v.ptr<double>()[at + i * v.stride.v[v.size.rank - 1]];
  return buffer;
}

// The lanes of columns [start, start + m) in plane `plane`: all axes but `axis` and the last (when it is another).
template <class T>
void scatter_block(const GatherBackwardArgs& a, const View& dx_plane, const View& grad_plane, const View& index_plane,
                   int64_t plane, int64_t start, int64_t m) {
  const int last = a.dx.size.rank - 1;
  const bool own = a.axis == last;  // the last axis is the gathered one
  const int64_t dx_step = own ? 0 : a.dx.stride.v[last], along = a.dx.stride.v[a.axis];
  const int64_t index_step = a.index.stride.v[last];
  T* dx = a.dx.ptr<T>() + row_offset(dx_plane, plane) + start * dx_step;
  const int64_t grad_at = row_offset(grad_plane, plane), index_from = row_offset(index_plane, plane);
  alignas(64) T buffer[kBlock];
  for (int64_t r = 0; r < (a.add ? 0 : a.dx.size.v[a.axis]); ++r) {
    T* row = dx + r * along;
    if (dx_step == 1) {
      __builtin_memset(row, 0, static_cast<uint64_t>(m) * sizeof(T));
    } else {
      for (int64_t i = 0; i < (own ? 1 : m); ++i) row[i * dx_step] = 0;
    }
  }
  const int64_t lines = own ? 1 : a.grad.size.v[a.axis], columns = own ? row_length(a.grad) : m;
  for (int64_t j = 0; j < lines; ++j) {
    for (int64_t s = 0; s < columns; s += kBlock) {
      const int64_t k = columns - s < kBlock ? columns - s : kBlock;
      const int64_t line = own ? 0 : j, column = start + s;
      const T* g =
          gradient_block(a.grad, grad_at + line * a.grad.stride.v[a.axis] + column * a.grad.stride.v[last], k, buffer);
      const int64_t at = index_from + line * a.index.stride.v[a.axis] + column * index_step;
      for (int64_t i = 0; i < k; ++i) dx[index_at(a.index, at + i * index_step) * along + (s + i) * dx_step] += g[i];
    }
  }
}

// A view whose row_offset runs over all axes but the gathered and the last one.
View planes_of(const View& v, int axis) {
  View p = v;
  if (axis != v.size.rank - 1) p.size.v[axis] = 1;
  return p;
}

template <class T>
void scatter(const GatherBackwardArgs& a) {
  const View dx = planes_of(a.dx, a.axis), grad = planes_of(a.grad, a.axis), index = planes_of(a.index, a.axis);
  const bool own = a.axis == a.dx.size.rank - 1;
  const int64_t width = own ? 1 : row_length(a.dx), chunk = 128, chunks = (width + chunk - 1) / chunk;
  const int64_t work = (own ? row_length(a.grad) : chunk * a.grad.size.v[a.axis]) + (a.add ? 0 : a.dx.size.v[a.axis]);
  parallel_for(rows_of(dx) * chunks, row_grain(work), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t start = unit % chunks * chunk, m = width - start < chunk ? width - start : chunk;
      scatter_block<T>(a, dx, grad, index, unit / chunks, start, m);
    }
  });
}

}  // namespace

void gather(const GatherArgs& a) {
  switch (item_size(a.x.dtype)) {
    case 8:
      return gather_rows<uint64_t>(a);
    case 4:
      return gather_rows<uint32_t>(a);
    case 2:
      return gather_rows<uint16_t>(a);
    default:
      return gather_rows<uint8_t>(a);
  }
}

void gather_backward(const GatherBackwardArgs& a) {
  if (a.dx.dtype == DType::kF64) {
    scatter<double>(a);
  } else {
    scatter<float>(a);
  }
}

}  // namespace tally::TALLY_ISA
