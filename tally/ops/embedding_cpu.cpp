// Embedding on the CPU. The backward sorts positions by id (a counting sort), so that each row of the table is summed
// by one thread in the order of positions, in f32, and rounded once.
#include "tally/ops/embedding_kernels.h"
#include "tally/ops/row_loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

int64_t id_at(const View& ids, int64_t i) {
  return ids.dtype == DType::kI64 ? ids.ptr<int64_t>()[i] : ids.ptr<int32_t>()[i];
}

// ends[v] becomes where the positions of id v end in `order`; they begin where those of v - 1 end.
void sort_positions(const View& ids, int64_t rows, int32_t* ends, int32_t* order) {
  const int64_t n = ids.numel();
  for (int64_t v = 0; v <= rows; ++v) ends[v] = 0;
  for (int64_t i = 0; i < n; ++i) ++ends[id_at(ids, i) + 1];
  for (int64_t v = 0; v < rows; ++v) ends[v + 1] += ends[v];
  for (int64_t i = 0; i < n; ++i) order[ends[id_at(ids, i)]++] = static_cast<int32_t>(i);
}

void sum_row(const EmbeddingBackwardArgs& a, int64_t v, const int32_t* first, const int32_t* last) {
  const int64_t d = a.grad.size.v[1], step = a.dtable.stride.v[1];
  alignas(64) float total[kBlock], buffer[kBlock];
  for (int64_t start = 0; start < d; start += kBlock) {
    const int64_t m = d - start < kBlock ? d - start : kBlock, at = v * a.dtable.stride.v[0] + start * step;
    for (int64_t i = 0; i < m; ++i) total[i] = 0;
    for (const int32_t* p = first; p < last; ++p) {
      const int64_t from = *p * a.grad.stride.v[0] + start * a.grad.stride.v[1];
      const float* g = block_in(a.grad, from, a.grad.stride.v[1], m, buffer);
      for (int64_t i = 0; i < m; ++i) total[i] += g[i];
    }
    if (a.add) {
      const float* there = block_in(a.dtable, at, step, m, buffer);
      for (int64_t i = 0; i < m; ++i) total[i] = there[i] + total[i];
    }
    block_out(a.dtable, at, step, m, total, total);
  }
}

void sum_row_f64(const EmbeddingBackwardArgs& a, int64_t v, const int32_t* first, const int32_t* last) {
  for (int64_t i = 0; i < a.grad.size.v[1]; ++i) {
    double& out = a.dtable.ptr<double>()[v * a.dtable.stride.v[0] + i * a.dtable.stride.v[1]];
    double total = a.add ? out : 0.0;
    for (const int32_t* p = first; p < last; ++p)
      total += a.grad.ptr<double>()[*p * a.grad.stride.v[0] + i * a.grad.stride.v[1]];
    out = total;
  }
}

}  // namespace

void embedding(const EmbeddingArgs& a) {
  const int64_t n = a.out.size.v[0], d = a.out.size.v[1], size = item_size(a.table.dtype);
  if (d == 0) return;
  const char* table = a.table.ptr<char>();
  char* out = a.out.ptr<char>();
  const bool whole = a.table.stride.v[1] == 1 && a.out.stride.v[1] == 1;
  const int64_t panel = a.table.size.rank == 3 ? a.table.size.v[2] : 1;  // rows that lie interleaved
  parallel_for(n, row_grain(d), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = id_at(a.ids, i);
      const char* from = table + (id / panel * a.table.stride.v[0] + id % panel) * size;
      char* to = out + i * a.out.stride.v[0] * size;
      if (whole) {
        __builtin_memcpy(to, from, static_cast<uint64_t>(d * size));
        continue;
      }
      for (int64_t j = 0; j < d; ++j)
        __builtin_memcpy(to + j * a.out.stride.v[1] * size, from + j * a.table.stride.v[1] * size,
                         static_cast<uint64_t>(size));
    }
  });
}

void embedding_backward(const EmbeddingBackwardArgs& a) {
  const int64_t rows = a.dtable.size.v[0];
  int32_t* ends = a.scratch.ptr<int32_t>();
  int32_t* order = ends + rows + 1;
  sort_positions(a.ids, rows, ends, order);
  parallel_for(rows, row_grain(a.grad.size.v[1]), [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) {
      const int32_t *first = order + (v > 0 ? ends[v - 1] : 0), *last = order + ends[v];
      if (a.add && first == last) continue;
      if (a.grad.dtype == DType::kF64) {
        sum_row_f64(a, v, first, last);
      } else {
        sum_row(a, v, first, last);
      }
    }
  });
}

}  // namespace tally::TALLY_ISA
