// Choices and triangles on the CPU: one loop an element's width.
#include "tally/ops/where_kernels.h"

#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

namespace {

template <class T>
void where_of(const WhereArgs& args) {
  const View& a = args.a_number ? args.condition : args.a;  // a number's view is not read
  const View& b = args.b_number ? args.condition : args.b;
  const View views[4] = {args.out, args.condition, a, b};
  const T a_value = static_cast<T>(args.a_bits), b_value = static_cast<T>(args.b_bits);
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    T* out = args.out.ptr<T>() + at[0];
    const uint8_t* c = args.condition.ptr<uint8_t>() + at[1];
    const T* p = args.a_number ? &a_value : a.ptr<T>() + at[2];
    const T* q = args.b_number ? &b_value : b.ptr<T>() + at[3];
    const int64_t p_step = args.a_number ? 0 : step[2], q_step = args.b_number ? 0 : step[3];
    if (step[0] == 1 && step[1] == 1 && p_step == 1 && q_step == 1) {
      for (int64_t i = 0; i < n; ++i) {
        const T x = p[i], y = q[i];
        out[i] = c[i] != 0 ? x : y;
      }
    } else if (step[0] == 1 && step[1] == 1 && p_step == 0 && q_step == 1) {
      const T x = *p;
      for (int64_t i = 0; i < n; ++i) {
        const T y = q[i];
        out[i] = c[i] != 0 ? x : y;
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        const T x = p[i * p_step], y = q[i * q_step];
        out[i * step[0]] = c[i * step[1]] != 0 ? x : y;
      }
    }
  });
}

template <class T>
void triangle_of(const TriangleArgs& a) {
  const Dims& size = a.out.size;
  const int last = size.rank - 1;
  const int64_t columns = size.v[last], rows = columns == 0 ? 0 : size.numel() / columns;
  const int64_t x_step = a.x.stride.v[last], out_step = a.out.stride.v[last];
  parallel_for(rows, (kGrainElements + columns - 1) / (columns > 0 ? columns : 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = a.x.ptr<T>();
      T* out = a.out.ptr<T>();
      int64_t rest = row;
      for (int axis = last - 1; axis >= 0; --axis) {
        const int64_t i = rest % size.v[axis];
        rest /= size.v[axis];
        x += i * a.x.stride.v[axis], out += i * a.out.stride.v[axis];
      }
      // The kept columns are [from, to); the diagonal may lie outside the matrix.
      const int64_t edge = row % size.v[last - 1] + a.diagonal + (a.upper ? 0 : 1);
      const int64_t inside = edge < 0 ? 0 : edge < columns ? edge : columns;
      const int64_t from = a.upper ? inside : 0, to = a.upper ? columns : inside;
      for (int64_t j = 0; j < from; ++j) out[j * out_step] = 0;
      for (int64_t j = from; j < to; ++j) out[j * out_step] = x[j * x_step];
      for (int64_t j = to; j < columns; ++j) out[j * out_step] = 0;
    }
  });
}

}  // namespace

void where(const WhereArgs& a) {
  switch (item_size(a.out.dtype)) {
    case 8:
      return where_of<uint64_t>(a);
    case 4:
      return where_of<uint32_t>(a);
    case 2:
      return where_of<uint16_t>(a);
    default:
      return where_of<uint8_t>(a);
  }
}

void triangle(const TriangleArgs& a) {
  switch (item_size(a.out.dtype)) {
    case 8:
      return triangle_of<uint64_t>(a);
    case 4:
      return triangle_of<uint32_t>(a);
    case 2:
      return triangle_of<uint16_t>(a);
    default:
      return triangle_of<uint8_t>(a);
  }
}

}  // namespace tally::TALLY_ISA
