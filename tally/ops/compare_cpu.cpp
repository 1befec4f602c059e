// Comparisons on the CPU: blocks of f32 (also for narrower floats), f64 or i64, one loop an op and type.
#include "tally/ops/compare_kernels.h"

#include <utility>

#include "tally/ops/plain_loops.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int64_t kNumbers = 256;  // of a block

template <class T>
using Loop = void (*)(const T* a, const T* b, uint8_t* out, int64_t n);

template <CompareOp op, class T>
void loop(const T* a, const T* b, uint8_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = compare_value<op>(a[i], b[i]);
}

template <class T, int... i>
Loop<T> loop_of(CompareOp op, std::integer_sequence<int, i...>) {
  static constexpr Loop<T> kLoops[] = {loop<static_cast<CompareOp>(i), T>...};
  return kLoops[static_cast<int>(op)];
}

template <class T>
void compare_as(const CompareArgs& args, DType own, T value) {
  const Loop<T> run = loop_of<T>(args.op, std::make_integer_sequence<int, kCompareOps>());
  const View& a = args.number == CompareArgs::kA ? args.b : args.a;  // the number's view is not read
  const View& b = args.number == CompareArgs::kB ? args.a : args.b;
  const View views[3] = {args.out, a, b};
  const DType dtype = own == DType::kI64 ? args.dtype : own;
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    T x[kNumbers], y[kNumbers], number[kNumbers];
    uint8_t answers[kNumbers];
    if (args.number != CompareArgs::kNone)
      for (T& v : number) v = value;
    for (int64_t start = 0; start < n; start += kNumbers) {
      const int64_t m = n - start < kNumbers ? n - start : kNumbers;
      const auto block = [&](int k, const View& v, T* buffer) {
        return numbers_in<T>(v, own, dtype, at[k] + start * step[k], step[k], m, buffer);
      };
      const T* p = args.number == CompareArgs::kA ? number : block(1, a, x);
      const T* q = args.number == CompareArgs::kB ? number : block(2, b, y);
      uint8_t* out = args.out.ptr<uint8_t>() + at[0] + start * step[0];
      if (step[0] == 1) {
        run(p, q, out, m);
      } else {
        run(p, q, answers, m);
        for (int64_t i = 0; i < m; ++i) out[i * step[0]] = answers[i];
      }
    }
  });
}

}  // namespace

void compare(const CompareArgs& a) {
  if (a.dtype == DType::kF64) return compare_as<double>(a, DType::kF64, a.real);
  if (is_floating(a.dtype)) return compare_as<float>(a, DType::kF32, static_cast<float>(a.real));
  int64_t whole = a.whole;
  wrap_block(a.dtype, &whole, 1);
  compare_as<int64_t>(a, DType::kI64, whole);
}

}  // namespace tally::TALLY_ISA
