// The table of ops: one line an op, which becomes a function of the module and, with `both`, a method of Tensor. Names,
// order of arguments and meaning are PyTorch's. `in_place` gives a method that changes its tensor and returns it.
#include "python/bind.h"
#include "python/operand.h"
#include "python/pairs.h"
#include "tally/ops/allclose.h"
#include "tally/ops/compare.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/indexing.h"
#include "tally/ops/matmul.h"
#include "tally/ops/scan.h"
#include "tally/ops/softmax.h"
#include "tally/ops/sort.h"
#include "tally/ops/view.h"
#include "tally/ops/where.h"

namespace tally::py {
namespace {

using Pair = Tensor (*)(const Operand&, const Operand&);

// A pair of tensors or a tensor and a number.
template <Pair F>
void pair(Ops& o, const char* name, const char* doc) {
  o.both(
      name, [](const Tensor& a, const OperandArg& b) { return F(a, b.get()); }, doc, "other"_a);
}

std::optional<Operand> bound(const std::optional<OperandArg>& x) {
  return x ? std::optional<Operand>(x->get()) : std::nullopt;
}
Tensor clamp_of(const Tensor& x, const std::optional<OperandArg>& low, const std::optional<OperandArg>& high) {
  return clamp(x, bound(low), bound(high));
}

void unary_ops(Ops& o) {
  o.both("relu", relu, "max(x, 0).");
  o.both("sigmoid", sigmoid, "1 / (1 + exp(-x)).");
  o.both("silu", silu, "x sigmoid(x).");
  o.both("gelu_erf", gelu, "x times the normal distribution's share below x (Hendrycks and Gimpel 2016).");
  o.both("gelu_tanh", gelu_tanh, "The formula of it with tanh, as in GPT-2.");
  o.both("tanh", tally::tanh, "The hyperbolic tangent.");
  o.both("exp", tally::exp, "e to the x.");
  o.both("expm1", tally::expm1, "e to the x, less 1, exact near 0.");
  o.both("log", tally::log, "The natural logarithm.");
  o.both("log1p", tally::log1p, "log(1 + x), exact near 0.");
  o.both("sqrt", tally::sqrt, "The square root; float32 of integers.");
  o.both("rsqrt", rsqrt, "1 / sqrt(x); float32 of integers.");
  o.both("reciprocal", reciprocal, "1 / x.");
  o.both("sin", tally::sin, "The sine.");
  o.both("cos", tally::cos, "The cosine.");
  o.both("erf", tally::erf, "The error function.");
  o.both("neg", neg, "-x.");
  o.both("abs", tally::abs, "|x|.");
  o.both("sign", sign, "-1, 0 or 1.");
  o.both("square", square, "x * x.");
  o.both("floor", tally::floor, "Rounded down.");
  o.both("ceil", tally::ceil, "Rounded up.");
  o.both("round", tally::round, "Rounded to the nearest whole number, halves to the even one.");
  o.both("trunc", tally::trunc, "Rounded towards 0.");
  o.both("bitwise_not", bitwise_not, "Every bit flipped; of bool the opposite.");
  o.both("logical_not", logical_not, "Whether x is 0.");
  o.both("isnan", tally::isnan, "Where x is NaN.");
  o.both("isinf", tally::isinf, "Where x is infinite.");
  o.both("isfinite", tally::isfinite, "Where x is neither NaN nor infinite.");
}

void pairs(Ops& o) {
  o.both(
      "add", [](const Tensor& a, const OperandArg& b, Scalar alpha) { return add(a, b.get(), alpha); },
      "a + alpha * b; shapes broadcast, dtypes promote.", "other"_a, nb::kw_only(), "alpha"_a = 1);
  o.both(
      "sub", [](const Tensor& a, const OperandArg& b, Scalar alpha) { return sub(a, b.get(), alpha); },
      "a - alpha * b.", "other"_a, nb::kw_only(), "alpha"_a = 1);
  pair<mul>(o, "mul", "a * b.");
  pair<div>(o, "div", "a / b, a float.");
  pair<tally::pow>(o, "pow", "a to the b; integers stay integers.");
  pair<maximum>(o, "maximum", "The larger; NaN where one is.");
  pair<minimum>(o, "minimum", "The smaller; NaN where one is.");
  pair<floor_divide>(o, "floor_divide", "Python's //.");
  pair<tally::remainder>(o, "remainder", "Python's %.");
  pair<bitwise_and>(o, "bitwise_and", "Bits of both.");
  pair<bitwise_or>(o, "bitwise_or", "Bits of either.");
  pair<bitwise_xor>(o, "bitwise_xor", "Bits of one.");
  pair<logical_and>(o, "logical_and", "Both are not 0.");
  pair<logical_or>(o, "logical_or", "One is not 0.");
  pair<logical_xor>(o, "logical_xor", "One alone is not 0.");
  pair<eq>(o, "eq", "a == b."), pair<ne>(o, "ne", "a != b.");
  pair<lt>(o, "lt", "a < b."), pair<le>(o, "le", "a <= b.");
  pair<gt>(o, "gt", "a > b."), pair<ge>(o, "ge", "a >= b.");
  o.both("clamp", clamp_of, "min(max(x, min), max); bounds are numbers or tensors.", "min"_a = nb::none(),
         "max"_a = nb::none());
  o.both("clip", clamp_of, "clamp().", "min"_a = nb::none(), "max"_a = nb::none());
  o.function(
      "where",
      [](const Tensor& condition, const OperandArg& a, const OperandArg& b) {
        return where(condition, a.get(), b.get());
      },
      "condition ? input : other.", "condition"_a, "input"_a, "other"_a);
  o.module_.def(
      "where",
      [](const Tensor& condition) {
        std::vector<Tensor> all;
        {
          const nb::gil_scoped_release free;
          all = where(condition);
        }
        return nb::tuple(nb::cast(all));
      },
      "nonzero(condition, as_tuple=True).", "condition"_a);
  o.class_.def(
      "where",
      [](const Tensor& x, const Tensor& condition, const OperandArg& y) { return where(condition, x, y.get()); },
      "condition"_a, "other"_a, "condition ? self : other.", Release());
  o.both(
      "masked_fill",
      [](const Tensor& x, const Tensor& mask, const OperandArg& v) { return masked_fill(x, mask, v.get()); },
      "x, and value where mask is true.", "mask"_a, "value"_a);
  o.both("triu", triu, "The upper triangle of the last two axes from a diagonal on; the rest is 0.", "diagonal"_a = 0);
  o.both("tril", tril, "The lower triangle up to a diagonal.", "diagonal"_a = 0);
  o.both("equal", equal, "Whether shapes and all values are equal, after promotion.", "other"_a);
  o.both("allclose", allclose, "Whether all |a - b| <= atol + rtol |b|.", "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8,
         "equal_nan"_a = false);
}

void in_place_ops(Ops& o) {
  using Change = void (*)(Tensor&, const Operand&);
  constexpr std::pair<const char*, Change> kPairs[] = {{"mul_", mul_},
                                                       {"div_", div_},
                                                       {"pow_", pow_},
                                                       {"floor_divide_", floor_divide_},
                                                       {"remainder_", remainder_},
                                                       {"bitwise_and_", bitwise_and_},
                                                       {"bitwise_or_", bitwise_or_},
                                                       {"bitwise_xor_", bitwise_xor_}};
  for (const auto& [name, f] : kPairs)
    in_place<OperandArg>(
        o, name, [f = f](Tensor& x, const OperandArg& y) { f(x, y.get()); }, "other"_a);
  in_place<OperandArg, Scalar>(
      o, "add_", [](Tensor& x, const OperandArg& y, Scalar alpha) { add_(x, y.get(), alpha); }, "other"_a,
      nb::kw_only(), "alpha"_a = 1);
  in_place<OperandArg, Scalar>(
      o, "sub_", [](Tensor& x, const OperandArg& y, Scalar alpha) { sub_(x, y.get(), alpha); }, "other"_a,
      nb::kw_only(), "alpha"_a = 1);
  constexpr std::pair<const char*, void (*)(Tensor&)> kUnary[] = {
      {"relu_", relu_}, {"sigmoid_", sigmoid_}, {"tanh_", tanh_},     {"exp_", exp_},
      {"log_", log_},   {"sqrt_", sqrt_},       {"rsqrt_", rsqrt_},   {"reciprocal_", reciprocal_},
      {"sin_", sin_},   {"cos_", cos_},         {"erf_", erf_},       {"neg_", neg_},
      {"abs_", abs_},   {"sign_", sign_},       {"square_", square_}, {"floor_", floor_},
      {"ceil_", ceil_}, {"round_", round_},     {"trunc_", trunc_},   {"zero_", zero_}};
  for (const auto& [name, f] : kUnary) in_place(o, name, f);
  in_place<std::optional<OperandArg>, std::optional<OperandArg>>(
      o, "clamp_",
      [](Tensor& x, const std::optional<OperandArg>& low, const std::optional<OperandArg>& high) {
        clamp_(x, bound(low), bound(high));
      },
      "min"_a = nb::none(), "max"_a = nb::none());
  in_place<Scalar>(
      o, "fill_", [](Tensor& x, Scalar value) { fill_(x, value); }, "value"_a);
  in_place<const Tensor&, OperandArg>(
      o, "masked_fill_", [](Tensor& x, const Tensor& mask, const OperandArg& v) { masked_fill_(x, mask, v.get()); },
      "mask"_a, "value"_a);
  in_place<const Tensor&>(o, "copy_", assign_, "other"_a);
}

void products(Ops& o) {
  const char* doc = "(..., M, K) @ (..., K, N) -> (..., M, N); leading axes broadcast; vectors as in PyTorch.";
  o.both("matmul", matmul, doc, "other"_a);
  o.both(
      "mm",
      [](const Tensor& a, const Tensor& b) {
        for (const Tensor* t : {&a, &b})
          if (t->dim() != 2) fail("mm: takes two matrices, got a {}-D tensor of shape {}", t->dim(), str(t->sizes()));
        return matmul(a, b);
      },
      "(M, K) @ (K, N) -> (M, N).", "mat2"_a);
  o.both("mv", matmul, "(M, K) @ (K) -> (M).", "vec"_a);
  o.both("dot", matmul, "The sum of the products of two vectors.", "tensor"_a);
  o.both(
      "outer", [](const Tensor& a, const Tensor& b) { return mul(unsqueeze(a, -1), b); },
      "(M), (N) -> (M, N): each product of an element of the one and one of the other.", "vec2"_a);
  o.both("bmm", bmm, "(B, M, K) @ (B, K, N) -> (B, M, N).", "mat2"_a);
  o.both(
      "softmax", [](const Tensor& x, int dim, std::optional<DType> t) { return softmax(t ? to(x, *t) : x, dim); },
      "exp(x) / sum(exp(x)) over dim.", "dim"_a, "dtype"_a = nb::none());
}

void ordering(Ops& o) {
  o.both(
      "sort", [](const Tensor& x, int dim, bool descending, bool stable) { return sort(x, dim, descending, stable); },
      "(values, indices) in order along dim; equal ones keep theirs.", "dim"_a = -1, "descending"_a = false,
      "stable"_a = false);
  o.both("argsort", argsort, "The places of sort().", "dim"_a = -1, "descending"_a = false, "stable"_a = false);
  o.both(
      "topk",
      [](const Tensor& x, int64_t k, int dim, bool largest, bool sorted) { return topk(x, k, dim, largest, sorted); },
      "(values, indices) of the k largest, or smallest, along dim.", "k"_a, "dim"_a = -1, "largest"_a = true,
      "sorted"_a = true);
  o.both("cumsum", cumsum, "Running sums along dim.", "dim"_a, "dtype"_a = nb::none());
  o.both("cumprod", cumprod, "Running products along dim.", "dim"_a, "dtype"_a = nb::none());
}

}  // namespace

void bind_ops(Ops& o) {
  unary_ops(o);
  pairs(o);
  in_place_ops(o);
  products(o);
  ordering(o);
}

}  // namespace tally::py
