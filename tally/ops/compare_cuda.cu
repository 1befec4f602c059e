// Comparisons on CUDA, as f32, f64 or i64: one kernel a type, which asks for the op.
#include "tally/ops/compare_kernels.h"
#include "tally/ops/plain_cuda.cuh"

namespace tally::cuda {

namespace {

template <class T>
struct Task {
  PlainAxes<3> axes;  // out, a, b
  DType a, b, dtype;
  CompareArgs::Number number;
  CompareOp op;
  T value;
  int64_t count;
};

// A number of any dtype as T; integers are wrapped to `dtype` first where that is an integer too.
template <class T>
__device__ __forceinline__ T read_as(const void* p, DType t, DType dtype, int64_t at) {
  if (!is_floating(t)) {
    const int64_t x = read_integer(p, t, at);
    return static_cast<T>(is_floating(dtype) ? x : wrap_integer(dtype, x));
  }
  if (t == DType::kF32) return static_cast<T>(static_cast<const float*>(p)[at]);
  if (t == DType::kBF16) return static_cast<T>(to_float(static_cast<const bf16*>(p)[at]));
  return static_cast<T>(read_number(p, t, at));
}

template <class T>
__device__ __forceinline__ bool answer(CompareOp op, T a, T b) {
  switch (op) {
    case CompareOp::kEq:
      return compare_value<CompareOp::kEq>(a, b);
    case CompareOp::kNe:
      return compare_value<CompareOp::kNe>(a, b);
    case CompareOp::kLt:
      return compare_value<CompareOp::kLt>(a, b);
    case CompareOp::kLe:
      return compare_value<CompareOp::kLe>(a, b);
    case CompareOp::kGt:
      return compare_value<CompareOp::kGt>(a, b);
    case CompareOp::kGe:
      return compare_value<CompareOp::kGe>(a, b);
    case CompareOp::kAnd:
      return compare_value<CompareOp::kAnd>(a, b);
    case CompareOp::kOr:
      return compare_value<CompareOp::kOr>(a, b);
    case CompareOp::kXor:
      return compare_value<CompareOp::kXor>(a, b);
    case CompareOp::kNot:
      return compare_value<CompareOp::kNot>(a, b);
    case CompareOp::kIsNan:
      return compare_value<CompareOp::kIsNan>(a, b);
    case CompareOp::kIsInf:
      return compare_value<CompareOp::kIsInf>(a, b);
    default:
      return compare_value<CompareOp::kIsFinite>(a, b);
  }
}

template <class T>
__global__ void __launch_bounds__(kPlainThreads) compare_kernel(const __grid_constant__ Task<T> t) {
  let_next_start();
  wait_for_previous();
  const int64_t step = int64_t{gridDim.x} * kPlainThreads;
  for (int64_t i = int64_t{blockIdx.x} * kPlainThreads + threadIdx.x; i < t.count; i += step) {
    int64_t at[3];
    places(t.axes, i, at);
    const T a = t.number == CompareArgs::kA ? t.value : read_as<T>(t.axes.data[1], t.a, t.dtype, at[1]);
    const T b = t.number == CompareArgs::kB ? t.value : read_as<T>(t.axes.data[2], t.b, t.dtype, at[2]);
    static_cast<uint8_t*>(const_cast<void*>(t.axes.data[0]))[at[0]] = answer(t.op, a, b);
  }
}

template <class T>
void compare_as(const CompareArgs& args, T value) {
  const View& a = args.number == CompareArgs::kA ? args.b : args.a;
  const View& b = args.number == CompareArgs::kB ? args.a : args.b;
  const Task<T> t = {
      plain_axes<3>({args.out, a, b}), a.dtype, b.dtype, args.dtype, args.number, args.op, value, args.out.numel()};
  if (t.count == 0) return;
  launch_after(CompareArgs::name, compare_kernel<T>, {blocks_for(t.count, kPlainThreads), kPlainThreads}, args.device(),
               t);
}

}  // namespace

void compare(const CompareArgs& a) {
  if (a.dtype == DType::kF64) return compare_as<double>(a, a.real);
  if (is_floating(a.dtype)) return compare_as<float>(a, static_cast<float>(a.real));
  compare_as<int64_t>(a, wrap_integer(a.dtype, a.whole));
}

}  // namespace tally::cuda
