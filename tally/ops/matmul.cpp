#include "tally/ops/matmul.h"

#include <atomic>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"
#include "tally/ops/view.h"

namespace tally {

namespace {
std::atomic<MatmulPrecision> the_precision = MatmulPrecision::kF32;
}

void set_matmul_precision(MatmulPrecision precision) { the_precision = precision; }
MatmulPrecision matmul_precision() { return the_precision; }
const char* name_of(MatmulPrecision precision) { return precision == MatmulPrecision::kTf32 ? "tf32" : "f32"; }
MatmulPrecision matmul_precision_from_name(const std::string& name) {
  for (const MatmulPrecision p : {MatmulPrecision::kF32, MatmulPrecision::kTf32})
    if (name == name_of(p)) return p;
  fail("products are computed in f32 or tf32, not in '{}'", name);
}

namespace {

// What a product on CUDA does beside; see MatmulArgs.
struct Beside {
  MatmulAux what_aux = MatmulAux::kNone;
  Tensor aux;  // rank 3
};

// c = a b (+ c) (+ bias): rank-3 tensors.
void gemm(const Tensor& a, const Tensor& b, const Tensor& c, bool accumulate, const Tensor& bias = {},
          bool b_packed = false, const Beside& beside = {}) {
  MatmulArgs args{};
  args.b_packed = b_packed;
  args.what_aux = beside.what_aux;
  if (beside.aux.defined()) args.aux = beside.aux.raw();
  args.a = a.raw(), args.b = b.raw(), args.c = c.raw();
  args.accumulate = accumulate;
  args.tf32 = a.dtype() == DType::kF32 && matmul_precision() == MatmulPrecision::kTf32;
  args.has_bias = bias.defined();
  if (bias.defined()) args.bias = bias.raw();
  Tensor scratch = Tensor::empty(Dims(matmul_scratch_bytes(args)), DType::kU8, c.device(), Category::kWorkspace);
  args.scratch = scratch.raw();
  launch(&Kernels::matmul, args);
}

Tensor transposed(const Tensor& x) {  // last two axes of a rank-3 tensor; not recorded
  Dims size = x.sizes(), stride = x.strides();
  std::swap(size[1], size[2]);
  std::swap(stride[1], stride[2]);
  return x.alias(size, stride, x.storage_offset());
}

// Rows of (..., K) as one (1, rows, K).
Tensor as_rows(const Tensor& x) {
  const int64_t k = x.sizes()[x.dim() - 1];
  Dims size(1, 1, k);
  for (int i = 0; i + 1 < x.dim(); ++i) size[1] *= x.sizes()[i];
  return reshape(x.detach(), size);
}

}  // namespace

void matmul_(const Tensor& c, const Tensor& a, const Tensor& b, bool accumulate) { gemm(a, b, c, accumulate); }

Tensor pack_weight(const Tensor& weight) {
  if (weight.dim() != 2 || (weight.dtype() != DType::kF32 && weight.dtype() != DType::kBF16))
    fail("pack_weight: takes a matrix of f32 or bf16, not {} of {}", str(weight.sizes()), name_of(weight.dtype()));
  constexpr int64_t kPanel = MatmulArgs::kPanel;
  const int64_t out = weight.size(0), in = weight.size(1), panels = (out + kPanel - 1) / kPanel, whole = out / kPanel;
  Tensor packed = Tensor::empty(Dims(panels, in, kPanel), weight.dtype(), weight.device(), weight.category());
  const Tensor w = contiguous(weight.detach());
  if (whole > 0)
    copy_(packed.alias(Dims(whole, kPanel, in), Dims(in * kPanel, 1, kPanel), 0),
          w.alias(Dims(whole, kPanel, in), Dims(kPanel * in, in, 1), w.storage_offset()));
  if (const int64_t rest = out - whole * kPanel; rest > 0) {
    Tensor last = packed.alias(Dims(in, kPanel), Dims(kPanel, 1), whole * in * kPanel);
    fill_(last, 0);
    copy_(packed.alias(Dims(rest, in), Dims(1, kPanel), whole * in * kPanel), slice(w, 0, whole * kPanel, out));
  }
  return packed;
}

Tensor linear_packed(const Tensor& x, const Tensor& packed, int64_t out, const Tensor& bias) {
  require_same("linear", x, packed);
  constexpr int64_t kPanel = MatmulArgs::kPanel;
  if (packed.dim() != 3 || packed.size(2) != kPanel || !packed.is_contiguous() || x.dim() < 1 ||
      x.size(-1) != packed.size(1) || out > packed.size(0) * kPanel || out <= (packed.size(0) - 1) * kPanel)
    fail("linear: input {} does not fit the packed weight {} of {} outputs", str(x.sizes()), str(packed.sizes()), out);
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != out))
    fail("linear: bias {} does not fit a weight of {} outputs", str(bias.sizes()), out);
  Dims size = x.sizes();
  size[size.rank - 1] = out;
  Tensor y = Tensor::empty(size, x.dtype(), x.device());
  gemm(as_rows(x), packed.detach(), as_rows(y), false, bias, true);
  return y;
}

namespace {

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require_same(op, x, weight);
  if (weight.dim() != 2 || x.dim() < 1 || x.size(-1) != weight.size(1))
    fail("{}: input {} does not fit weight {} (out, in)", op, str(x.sizes()), str(weight.sizes()));
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0)))
    fail("{}: bias {} does not fit weight {}", op, str(bias.sizes()), str(weight.sizes()));
}

bool on_cuda(const Tensor& x) { return target_of(x.device()) == DeviceKind::kCuda; }

// Gradients of weight (input w) and bias (input b) of a linear from g, the gradient of its result as rows, and its
// input's rows.
void add_weight_gradients(Backward& t, int w, int b, const Tensor& g, const Tensor& rows) {
  if (t.needs(w)) {
    bool accumulate;
    Tensor dw = t.target(w, accumulate);
    gemm(transposed(g), rows, unsqueeze(dw.detach(), 0), accumulate);
    t.add(w, dw, accumulate);
  }
  if (t.needs(b)) {
    const Dims flat(g.size(1), g.size(2));
    t.add(b, sum_to(g.alias(flat, Dims(g.stride(1), g.stride(2)), g.storage_offset()), t.input(b).size, t.category(b),
                    t.gradient_dtype(b)));
  }
}

}  // namespace

// One node for the whole block, so that both GELU's value and its gradient can ride in products. (The sums for the
// biases could too, but cuBLASLt 13.1 then takes algorithms that cost more than the sums: 62 ms in place of 45 ms for
// the products of GPT-2's backward at 65,536 tokens on an H200.)
Tensor gelu_tanh_mlp(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2) {
  check_linear("gelu_tanh_mlp", x, w1, b1);
  if (w2.dim() != 2 || w2.size(1) != w1.size(0))
    fail("gelu_tanh_mlp: weights {} and {} do not fit", str(w1.sizes()), str(w2.sizes()));
  if (!on_cuda(x)) return linear(gelu_tanh(linear(x, w1, b1)), w2, b2);
  require_same("gelu_tanh_mlp", x, w2);
  if (b2.defined() && (b2.dim() != 1 || b2.size(0) != w2.size(0)))
    fail("gelu_tanh_mlp: bias {} does not fit weight {}", str(b2.sizes()), str(w2.sizes()));
  Dims hidden = x.sizes(), size = x.sizes();
  hidden[hidden.rank - 1] = w1.size(0), size[size.rank - 1] = w2.size(0);
  const Tensor before = Tensor::empty(hidden, x.dtype(), x.device());
  const Tensor after = Tensor::empty(hidden, x.dtype(), x.device());
  Tensor y = Tensor::empty(size, x.dtype(), x.device());
  gemm(as_rows(x), transposed(unsqueeze(w1.detach(), 0)), as_rows(after), false, b1, false,
       {MatmulAux::kGelu, as_rows(before)});
  gemm(as_rows(after), transposed(unsqueeze(w2.detach(), 0)), as_rows(y), false, b2);
  record(y, {x, w1, b1, w2, b2}, {x, w1, w2, before, after}, [](Backward& t) {
    const Tensor g = as_rows(t.grad());
    {
      const Tensor after_rows = as_rows(t.saved(4));
      add_weight_gradients(t, 3, 4, g, after_rows);
    }
    if (!t.needs(0) && !t.needs(1) && !t.needs(2)) return;
    // The gradient before GELU takes the place of the value behind it, which nobody needs any more.
    Tensor dbefore = t.take_saved(4);
    if (!dbefore.unique_storage()) dbefore = Tensor::empty(dbefore.sizes(), dbefore.dtype(), dbefore.device());
    const Tensor before_rows = as_rows(t.saved(3)), d = as_rows(dbefore);
    gemm(g, unsqueeze(t.saved(2), 0), d, false, {}, false, {MatmulAux::kGeluGradient, before_rows});
    add_weight_gradients(t, 1, 2, d, as_rows(t.saved(0)));
    if (t.needs(0)) {
      bool accumulate;
      Tensor dx = t.target(0, accumulate);
      gemm(d, unsqueeze(t.saved(1), 0), as_rows(dx), accumulate);
      t.add(0, dx, accumulate);
    }
  });
  return y;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_linear("linear", x, weight, bias);
  Dims size = x.sizes();
  size[size.rank - 1] = weight.size(0);
  Tensor y = Tensor::empty(size, x.dtype(), x.device());
  const Tensor w = unsqueeze(weight.detach(), 0);
  gemm(as_rows(x), transposed(w), as_rows(y), false, bias);
  record(y, {x, weight, bias}, {x, weight}, [](Backward& t) {
    const Tensor g = as_rows(t.grad()), rows = as_rows(t.saved(0)), matrix = unsqueeze(t.saved(1), 0);
    add_weight_gradients(t, 1, 2, g, rows);
    if (t.needs(0)) {
      bool accumulate;
      Tensor dx = t.target(0, accumulate);
      gemm(g, matrix, as_rows(dx), accumulate);
      t.add(0, dx, accumulate);
    }
  });
  return y;
}

namespace {

// Whether several linears of x are one launch: from shapes, dtypes and strides only, so that a plan knows it too.
bool in_one_launch(const Tensor& x, const std::vector<LinearWeight>& all) {
  const int64_t k = x.size(-1), rows = k == 0 ? 0 : x.numel() / k;
  bool fits = on_cuda(x) && rows >= 1 && rows <= 8 && x.dtype() != DType::kF64 && all.size() >= 2 &&
              all.size() <= 1 + MatmulArgs::kMore;
  for (const LinearWeight& l : all)
    fits = fits && l.bias.defined() == all[0].bias.defined() && !needs_grad({x, l.weight, l.bias});
  return fits;
}

// Of weights that have been checked. Results: one a weight, or one for both with kSwiglu.
void gemm_many(const Tensor& x, const std::vector<LinearWeight>& all, const std::vector<Tensor>& y, MatmulAux what) {
  std::vector<Tensor> keep;  // views whose storage must live until the launch
  const auto raw = [&](Tensor t) { return keep.emplace_back(std::move(t)).raw(); };
  const auto matrix = [&](const LinearWeight& l) { return raw(transposed(unsqueeze(l.weight.detach(), 0))); };
  MatmulArgs args{};
  args.what_aux = what;
  args.a = raw(as_rows(x)), args.b = matrix(all[0]), args.c = raw(as_rows(y[0]));
  args.tf32 = x.dtype() == DType::kF32 && matmul_precision() == MatmulPrecision::kTf32;
  args.has_bias = all[0].bias.defined();
  if (args.has_bias) args.bias = all[0].bias.raw();
  args.more = static_cast<int>(all.size()) - 1;
  for (size_t i = 1; i < all.size(); ++i) {
    args.more_b[i - 1] = matrix(all[i]);
    if (args.has_bias) args.more_bias[i - 1] = all[i].bias.raw();
    if (what != MatmulAux::kSwiglu) args.more_c[i - 1] = raw(as_rows(y[i]));
  }
  const Tensor scratch = Tensor::empty(Dims(matmul_scratch_bytes(args)), DType::kU8, x.device(), Category::kWorkspace);
  args.scratch = scratch.raw();
  launch(&Kernels::matmul, args);
}

Tensor empty_result(const Tensor& x, const Tensor& weight) {
  Dims size = x.sizes();
  size[size.rank - 1] = weight.size(0);
  return Tensor::empty(size, x.dtype(), x.device());
}

}  // namespace

std::vector<Tensor> linear_many(const Tensor& x, const std::vector<LinearWeight>& all) {
  for (const LinearWeight& l : all) check_linear("linear", x, l.weight, l.bias);
  std::vector<Tensor> y;
  const bool once = !all.empty() && in_one_launch(x, all);
  for (const LinearWeight& l : all) y.push_back(once ? empty_result(x, l.weight) : linear(x, l.weight, l.bias));
  if (once) gemm_many(x, all, y, MatmulAux::kNone);
  return y;
}

Tensor linear_swiglu(const Tensor& x, const LinearWeight& gate, const LinearWeight& up) {
  for (const LinearWeight* l : {&gate, &up}) check_linear("linear_swiglu", x, l->weight, l->bias);
  if (gate.weight.size(0) != up.weight.size(0))
    fail("linear_swiglu: weights {} and {} differ", str(gate.weight.sizes()), str(up.weight.sizes()));
  if (!in_one_launch(x, {gate, up})) return swiglu(linear(x, gate.weight, gate.bias), linear(x, up.weight, up.bias));
  const Tensor y = empty_result(x, gate.weight);
  gemm_many(x, {gate, up}, {y}, MatmulAux::kSwiglu);
  return y;
}

}  // namespace tally
