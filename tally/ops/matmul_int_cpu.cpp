// Integer products on the CPU: a row of c is the sum of rows of b, each times a number of a. Unsigned numbers wrap
// around as signed ones do.
#include "tally/ops/matmul_int_kernels.h"

#include "tally/base/parallel.h"

namespace tally::TALLY_ISA {

namespace {

template <class T>
void multiply(const MatmulIntArgs& p) {
  const int64_t rows = p.c.size.v[1], columns = p.c.size.v[2], depth = p.a.size.v[2];
  const int64_t work = columns * (depth + 1), b_step = p.b.stride.v[2], c_step = p.c.stride.v[2];
  parallel_for(p.c.size.v[0] * rows, work < 32768 ? 32768 / work : 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / rows, row = i % rows;
      const T* a = p.a.ptr<T>() + batch * p.a.stride.v[0] + row * p.a.stride.v[1];
      T* c = p.c.ptr<T>() + batch * p.c.stride.v[0] + row * p.c.stride.v[1];
      for (int64_t j = 0; j < columns; ++j) c[j * c_step] = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const uint64_t x = a[k * p.a.stride.v[2]];
        const T* b = p.b.ptr<T>() + batch * p.b.stride.v[0] + k * p.b.stride.v[1];
        if (b_step == 1 && c_step == 1) {
          for (int64_t j = 0; j < columns; ++j) c[j] = static_cast<T>(c[j] + x * b[j]);
        } else {
          for (int64_t j = 0; j < columns; ++j) c[j * c_step] = static_cast<T>(c[j * c_step] + x * b[j * b_step]);
        }
      }
    }
  });
}

}  // namespace

void matmul_int(const MatmulIntArgs& p) {
  if (p.c.numel() == 0) return;
  with_unsigned(p.c.dtype, [&](auto number) { multiply<decltype(number)>(p); });
}

}  // namespace tally::TALLY_ISA
