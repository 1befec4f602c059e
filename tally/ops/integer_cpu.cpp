// Arithmetic of integers on the CPU: blocks of i64, one loop an op, whatever the dtypes.
#include <utility>

#include "tally/ops/integer_kernels.h"
#include "tally/ops/plain_loops.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int64_t kNumbers = 256;  // of a block

using Loop = void (*)(const int64_t* a, const int64_t* b, int64_t* out, int64_t n);

template <IntegerOp op>
void loop(const int64_t* a, const int64_t* b, int64_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = integer_value<op>(a[i], b[i]);
}

template <int... i>
Loop loop_of(IntegerOp op, std::integer_sequence<int, i...>) {
  static constexpr Loop kLoops[] = {loop<static_cast<IntegerOp>(i)>...};
  return kLoops[static_cast<int>(op)];
}

}  // namespace

void integer(const IntegerArgs& args) {
  const Loop run = loop_of(args.op, std::make_integer_sequence<int, kIntegerOps>());
  const View& a = args.number == IntegerArgs::kA ? args.b : args.a;  // the number's view is not read
  const View& b = args.number == IntegerArgs::kB ? args.a : args.b;
  const View views[3] = {args.out, a, b};
  const DType dtype = args.out.dtype;
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    int64_t x[kNumbers], y[kNumbers], z[kNumbers], number[kNumbers];
    if (args.number != IntegerArgs::kNone) {
      for (int64_t& v : number) v = args.value;
      wrap_block(dtype, number, kNumbers);
    }
    for (int64_t start = 0; start < n; start += kNumbers) {
      const int64_t m = n - start < kNumbers ? n - start : kNumbers;
      const auto block = [&](int k, const View& v, int64_t* buffer) {
        return numbers_in<int64_t>(v, DType::kI64, dtype, at[k] + start * step[k], step[k], m, buffer);
      };
      const int64_t* p = args.number == IntegerArgs::kA ? number : block(1, a, x);
      const int64_t* q = args.number == IntegerArgs::kB ? number : block(2, b, y);
      const bool direct = dtype == DType::kI64 && step[0] == 1;
      int64_t* out = direct ? args.out.ptr<int64_t>() + at[0] + start : z;
      run(p, q, out, m);
      if (!direct) write_block(args.out, at[0] + start * step[0], step[0], m, z);
    }
  });
}

}  // namespace tally::TALLY_ISA
