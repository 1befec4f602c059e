#include "tally/ops/elementwise.h"

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/tape.h"
#include "tally/ops/launch.h"
#include "tally/ops/reduce.h"

namespace tally {

void require_float(const char* op, const Tensor& x) {
  if (!x.defined()) fail("{}: an input is missing", op);
  if (!is_float(x.dtype())) fail("{}: takes a float tensor, not {}", op, name_of(x.dtype()));
}

void require_same(const char* op, const Tensor& a, const Tensor& b) {
  require_float(op, a);
  require_float(op, b);
  if (a.dtype() != b.dtype()) fail("{}: dtypes {} and {} differ", op, name_of(a.dtype()), name_of(b.dtype()));
  if (a.device() != b.device()) fail("{}: devices {} and {} differ", op, name_of(a.device()), name_of(b.device()));
}

void refuse_f16(const char* op, const Tensor& x) {
  if (x.defined() && x.dtype() == DType::kF16)
    fail_type("{}: takes f64, f32 and bf16, not f16; convert with to(x, bf16) or to(x, f32)", op);
}

bool widens_f16(const Tensor& x) { return x.dtype() == DType::kF16 && target_of(x.device()) == DeviceKind::kCuda; }

Dims broadcast_shape(const char* op, const Dims& a, const Dims& b) {
  Dims out = a.rank >= b.rank ? a : b;
  for (int i = 1; i <= out.rank; ++i) {
    const int64_t x = i <= a.rank ? a[a.rank - i] : 1, y = i <= b.rank ? b[b.rank - i] : 1;
    if (x != y && x != 1 && y != 1) fail("{}: shapes {} and {} do not broadcast", op, str(a), str(b));
    out[out.rank - i] = x == 1 ? y : x;
  }
  return out;
}

Tensor broadcast_to(const Tensor& x, const Dims& size) {
  if (x.sizes() == size) return x;
  if (size.rank < x.dim()) fail("broadcast: shape {} does not expand to {}", str(x.sizes()), str(size));
  Dims stride;
  stride.rank = size.rank;
  for (int i = 1; i <= size.rank; ++i) {
    const bool there = i <= x.dim() && x.sizes()[x.dim() - i] == size[size.rank - i];
    if (!there && i <= x.dim() && x.sizes()[x.dim() - i] != 1)
      fail("broadcast: shape {} does not expand to {}", str(x.sizes()), str(size));
    stride[size.rank - i] = there ? x.strides()[x.dim() - i] : 0;
  }
  Tensor y = x.alias(size, stride, x.storage_offset());
  record(y, {x}, {},
         [](Backward& b) { b.add(0, sum_to(b.grad(), b.input(0).size, b.category(0), b.gradient_dtype(0))); });
  return y;
}

Tensor sum_to(const Tensor& gradient, const Dims& size, Category category, DType dtype) {
  if (gradient.sizes() == size) return gradient;
  Dims padded;
  padded.rank = gradient.dim();
  for (int i = 1; i <= padded.rank; ++i) padded[padded.rank - i] = i <= size.rank ? size[size.rank - i] : 1;
  Tensor out = Tensor::empty(padded, dtype, gradient.device(), category);
  reduce_(ReduceOp::kSum, gradient, out);
  return out.alias(size, contiguous_strides(size), 0);
}

Tensor unary(UnaryOp op, const Tensor& x, float alpha, float beta) {
  require_float(kUnaryRows[static_cast<int>(op)].name, x);
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  launch(&Kernels::unary, UnaryArgs{x.raw(), y.raw(), op, alpha, beta});
  record(
      y, {x}, {x},
      [](Backward& b, UnaryOp f, float a) {
        Tensor dx = b.empty(0);
        launch(&Kernels::unary_backward, UnaryBackwardArgs{b.grad().raw(), b.saved(0).raw(), dx.raw(), f, a});
        b.add(0, dx);
      },
      op, alpha);
  return y;
}

Tensor relu(const Tensor& x) { return unary(UnaryOp::kRelu, x); }
Tensor gelu(const Tensor& x) { return unary(UnaryOp::kGeluErf, x); }
Tensor gelu_tanh(const Tensor& x) { return unary(UnaryOp::kGeluTanh, x); }
Tensor silu(const Tensor& x) { return unary(UnaryOp::kSilu, x); }
Tensor sigmoid(const Tensor& x) { return unary(UnaryOp::kSigmoid, x); }
Tensor tanh(const Tensor& x) { return unary(UnaryOp::kTanh, x); }
Tensor exp(const Tensor& x) { return unary(UnaryOp::kExp, x); }
Tensor log(const Tensor& x) { return unary(UnaryOp::kLog, x); }
Tensor sqrt(const Tensor& x) { return unary(UnaryOp::kSqrt, x); }
Tensor rsqrt(const Tensor& x) { return unary(UnaryOp::kRsqrt, x); }
Tensor neg(const Tensor& x) { return unary(UnaryOp::kNeg, x); }
Tensor square(const Tensor& x) { return unary(UnaryOp::kSquare, x); }
Tensor affine(const Tensor& x, float scale, float shift) { return unary(UnaryOp::kAffine, x, scale, shift); }

namespace {

Tensor binary(const char* name, BinaryOp op, const Tensor& a, const Tensor& b, Category category) {
  require_same(name, a, b);
  const Dims size = broadcast_shape(name, a.sizes(), b.sizes());
  Tensor out = Tensor::empty(size, a.dtype(), a.device(), category);
  launch(&Kernels::binary, BinaryArgs{broadcast_to(a, size).raw(), broadcast_to(b, size).raw(), out.raw(), op});
  return out;
}

// Contributes the gradient g of the broadcast shape to input i.
void add_summed(Backward& b, int i, const Tensor& g) {
  b.add(i, sum_to(g, b.input(i).size, b.category(i), b.gradient_dtype(i)));
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  Tensor y = binary("add", BinaryOp::kAdd, a, b, Category::kActivation);
  record(y, {a, b}, {}, [](Backward& t) {
    for (int i = 0; i < 2; ++i)
      if (t.needs(i)) add_summed(t, i, t.grad());
  });
  return y;
}

Tensor sub(const Tensor& a, const Tensor& b) {
  Tensor y = binary("sub", BinaryOp::kSub, a, b, Category::kActivation);
  record(y, {a, b}, {}, [](Backward& t) {
    NoGrad quiet;
    if (t.needs(0)) add_summed(t, 0, t.grad());
    if (t.needs(1)) add_summed(t, 1, neg(t.grad()));
  });
  return y;
}

Tensor mul(const Tensor& a, const Tensor& b) {
  Tensor y = binary("mul", BinaryOp::kMul, a, b, Category::kActivation);
  record(y, {a, b}, {a, b}, [](Backward& t) {
    for (int i = 0; i < 2; ++i)
      if (t.needs(i)) add_summed(t, i, binary("mul", BinaryOp::kMul, t.grad(), t.saved(1 - i), t.category(i)));
  });
  return y;
}

Tensor div(const Tensor& a, const Tensor& b) {
  Tensor y = binary("div", BinaryOp::kDiv, a, b, Category::kActivation);
  record(y, {a, b}, {y, b}, [](Backward& t) {
    NoGrad quiet;
    // da = g / b; db = -(g / b) * y
    const Tensor da = binary("div", BinaryOp::kDiv, t.grad(), t.saved(1), t.category(0));
    if (t.needs(1)) add_summed(t, 1, neg(mul(da, t.saved(0))));
    if (t.needs(0)) add_summed(t, 0, da);
  });
  return y;
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  require_same("swiglu", gate, up);
  if (gate.sizes() != up.sizes()) fail("swiglu: shapes {} and {} differ", str(gate.sizes()), str(up.sizes()));
  Tensor y = Tensor::empty(gate.sizes(), gate.dtype(), gate.device());
  launch(&Kernels::swiglu, SwigluArgs{gate.raw(), up.raw(), y.raw()});
  record(y, {gate, up}, {gate, up}, [](Backward& b) {
    Tensor dgate = b.empty(0), dup = b.empty(1);
    launch(&Kernels::swiglu_backward,
           SwigluBackwardArgs{b.grad().raw(), b.saved(0).raw(), b.saved(1).raw(), dgate.raw(), dup.raw()});
    b.add(0, dgate);
    b.add(1, dup);
  });
  return y;
}

void fill_(Tensor& x, double value) { launch(&Kernels::fill, FillArgs{x.raw(), value}); }

void copy_(const Tensor& into, const Tensor& from, bool saturate) {
  if (into.dtype() != from.dtype() && (into.dtype() == DType::kF4E2M1x2 || from.dtype() == DType::kF4E2M1x2))
    fail_type("copy: {} to {}: a byte of f4e2m1x2 holds two codes; use quantize and dequantize", name_of(from.dtype()),
              name_of(into.dtype()));
  if (into.sizes() != from.sizes()) fail("copy: shapes {} and {} differ", str(into.sizes()), str(from.sizes()));
  if (into.device() == from.device()) return launch(&Kernels::copy, CopyArgs{from.raw(), into.raw(), saturate});
  // Between devices bytes are moved between contiguous tensors of one dtype; the kernels of both ends do the rest.
  if (!from.is_contiguous() || from.dtype() != into.dtype()) {
    const Tensor dense = Tensor::empty(from.sizes(), into.dtype(), from.device(), Category::kWorkspace);
    copy_(dense, from, saturate);
    return copy_(into, dense);
  }
  if (!into.is_contiguous()) {
    const Tensor dense = Tensor::empty(into.sizes(), into.dtype(), into.device(), Category::kWorkspace);
    copy_(dense, from);
    return copy_(into, dense);
  }
  copy_bytes(into.raw().data, into.device(), from.raw().data, from.device(), from.numel() * from.element_size());
}

Tensor to(const Tensor& x, Device device, bool non_blocking) {
  if (x.device() == device) return x;
  const bool to_host = device.kind == DeviceKind::kCpu, from_host = x.device().kind == DeviceKind::kCpu;
  const bool at_once = non_blocking && x.is_contiguous() && (!from_host || x.is_pinned());
  Tensor y = at_once && to_host ? Tensor::empty_pinned(x.sizes(), x.dtype(), x.category())
                                : Tensor::empty(x.sizes(), x.dtype(), device, x.category());
  if (at_once) {
    copy_bytes_async(y.raw().data, device, x.raw().data, x.device(), x.numel() * x.element_size());
  } else {
    copy_(y, x);
  }
  return y;
}

Tensor pin_memory(const Tensor& x) {
  if (x.device().kind != DeviceKind::kCpu)
    fail("pin_memory: takes a tensor of the CPU, not of {}", name_of(x.device()));
  if (x.is_pinned()) return x;
  Tensor y = Tensor::empty_pinned(x.sizes(), x.dtype(), x.category());
  copy_(y, x);
  return y;
}

void add_(const Tensor& into, const Tensor& x) {
  if (into.defined() && x.defined() && into.dtype() == DType::kF32 && is_half(x.dtype())) {
    if (into.device() != x.device())
      fail("add_: devices {} and {} differ", name_of(into.device()), name_of(x.device()));
  } else {
    require_same("add_", into, x);
  }
  launch(&Kernels::binary, BinaryArgs{into.raw(), broadcast_to(x, into.sizes()).raw(), into.raw(), BinaryOp::kAdd});
}

}  // namespace tally
