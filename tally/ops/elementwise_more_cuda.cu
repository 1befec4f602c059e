// The rest of the element-wise functions on CUDA, apart so that no file compiles for long (elementwise_cuda.cuh has the
// kernel). Those of the first file go by the gates' quick arithmetic where they may; all of these are exact.
#include "tally/ops/elementwise_cuda.cuh"
#include "tally/ops/elementwise_kernels.h"
#include "tally/ops/elementwise_more_cuda.h"

namespace tally::cuda {

namespace {

template <UnaryOp op>
struct Unary {
  static constexpr int kBlocks = 3;
  static constexpr bool kMoves = false;
  float alpha, beta;
  __device__ __forceinline__ void run(const float (&in)[1], float (&out)[1]) const {
    out[0] = unary_value<op, CudaMath>(in[0], alpha, beta);
  }
};

template <UnaryOp op>
struct UnaryGradient {  // of (x, grad)
  static constexpr int kBlocks = 3;
  static constexpr bool kMoves = false;
  float alpha, beta;
  __device__ __forceinline__ void run(const float (&in)[2], float (&out)[1]) const {
    out[0] = unary_gradient<op, CudaMath>(in[0], in[1], alpha, beta);
  }
};

template <BinaryOp op, bool first>
struct BinaryGradient {  // of (a, b, grad)
  static constexpr int kBlocks = 2;
  static constexpr bool kMoves = false;
  __device__ __forceinline__ void run(const float (&in)[3], float (&out)[1]) const {
    out[0] = binary_gradient<op, first, CudaMath>(in[0], in[1], in[2]);
  }
};

template <BinaryOp op>
struct Binary {
  static constexpr int kBlocks = 3;
  static constexpr bool kMoves = false;
  float alpha;
  __device__ __forceinline__ void run(const float (&in)[2], float (&out)[1]) const {
    out[0] = binary_value<op, CudaMath>(in[0], in[1], alpha);
  }
};

template <UnaryOp op>
struct UnaryTag {
  static constexpr UnaryOp value = op;
};

// f(UnaryTag<op>) for the ops in [i, end).
template <int i, int end, class F>
void with_unary(UnaryOp op, const F& f) {
  if constexpr (i < end) {
    if (static_cast<int>(op) == i) return f(UnaryTag<static_cast<UnaryOp>(i)>{});
    with_unary<i + 1, end>(op, f);
  }
}

template <BinaryOp op, bool first>
void gradient_of(const BinaryBackwardArgs& a) {
  const View* const views[4] = {&a.out, &a.a, &a.b, &a.grad};
  map<1, 3>(BinaryBackwardArgs::name, a.device(), views, BinaryGradient<op, first>{});
}

template <BinaryOp op>
void binary_of(const BinaryArgs& a) {
  const View* const views[3] = {&a.out, &a.a, &a.b};
  map<1, 2>(BinaryArgs::name, a.device(), views, Binary<op>{static_cast<float>(a.alpha)});
}

}  // namespace

void unary_more(const UnaryArgs& a) {
  const View* const views[2] = {&a.out, &a.x};
  with_unary<kFirstMore, kUnaryOps>(a.op, [&](auto tag) {
    map<1, 1>(UnaryArgs::name, a.device(), views,
              Unary<decltype(tag)::value>{static_cast<float>(a.alpha), static_cast<float>(a.beta)});
  });
}

void unary_backward_more(const UnaryBackwardArgs& a) {
  const View* const views[3] = {&a.dx, &a.x, &a.grad};
  with_unary<kFirstMore, kUnaryBackwards>(a.op, [&](auto tag) {
    map<1, 2>(UnaryBackwardArgs::name, a.device(), views,
              UnaryGradient<decltype(tag)::value>{static_cast<float>(a.alpha), static_cast<float>(a.beta)});
  });
}

void binary_more(const BinaryArgs& a) {
  switch (a.op) {
    case BinaryOp::kAddScaled:
      return binary_of<BinaryOp::kAddScaled>(a);
    case BinaryOp::kPow:
      return binary_of<BinaryOp::kPow>(a);
    case BinaryOp::kMaximum:
      return binary_of<BinaryOp::kMaximum>(a);
    case BinaryOp::kMinimum:
      return binary_of<BinaryOp::kMinimum>(a);
    case BinaryOp::kFloorDiv:
      return binary_of<BinaryOp::kFloorDiv>(a);
    default:
      return binary_of<BinaryOp::kRemainder>(a);
  }
}

void binary_backward(const BinaryBackwardArgs& a) {
  const View* const views[4] = {&a.out, &a.a, &a.b, &a.grad};
  require_f32_or_bf16(BinaryBackwardArgs::name, views);
  switch (a.op) {
    case BinaryOp::kPow:
      return a.first ? gradient_of<BinaryOp::kPow, true>(a) : gradient_of<BinaryOp::kPow, false>(a);
    case BinaryOp::kMaximum:
      return a.first ? gradient_of<BinaryOp::kMaximum, true>(a) : gradient_of<BinaryOp::kMaximum, false>(a);
    default:
      return a.first ? gradient_of<BinaryOp::kMinimum, true>(a) : gradient_of<BinaryOp::kMinimum, false>(a);
  }
}

}  // namespace tally::cuda
