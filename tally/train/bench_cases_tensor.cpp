// Cases of `tally bench ops`: the kernels behind tensors as a user handles them.
#include <algorithm>

#include "tally/ops/allclose.h"
#include "tally/ops/compare.h"
#include "tally/ops/conv.h"
#include "tally/ops/creation.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/indexing.h"
#include "tally/ops/launch.h"
#include "tally/ops/losses.h"
#include "tally/ops/matmul.h"
#include "tally/ops/quantize.h"
#include "tally/ops/random.h"
#include "tally/ops/reduce.h"
#include "tally/ops/reduce_plain.h"
#include "tally/ops/scan.h"
#include "tally/ops/scatter.h"
#include "tally/ops/sort.h"
#include "tally/ops/where.h"
#include "tally/train/bench_cases.h"

namespace tally {

namespace {

constexpr int64_t kTop = 50, kTaps = 4, kChannels = 512, kClasses = 32000, kIntegers = 1000;

// A function of one tensor of numbers so near to 1 that a product of a whole row stays in f32's range.
OpCase near_one_case(const char* op, const char* size, const Dims& x, Tensor (*f)(const Tensor&)) {
  const auto make = [=] {
    const Tensor a = affine(bench_values(x, 1, Category::kParameter), 1.0 / 64, 1).set_requires_grad();
    return OpCall{{{"a", a}}, [=] { return f(a); }, true};
  };
  return {op, bench_shape(x), size, make};
}

// A function of two tensors of ids.
OpCase integer_case(const char* op, const char* size, const std::string& shape, const Dims& x,
                    Tensor (*f)(const Tensor&, const Tensor&)) {
  const auto make = [=] {
    const Tensor a = bench_ids(x, kIntegers, 1), b = bench_ids(x, kIntegers, 2);
    return OpCall{{{"a", a}, {"b", b}}, [=] { return f(a, b); }, false};
  };
  return {op, shape, size, make};
}

// Of two tensors of floats and a condition that holds for half of the elements.
OpCase masked_case(const char* op, const char* size, const Dims& x, bool gradient,
                   const std::function<Tensor(const Tensor& mask, const Tensor& a, const Tensor& b)>& f) {
  const auto make = [=] {
    const Tensor mask = gt(bench_values(x, 3), 0.0);
    const Tensor a = gradient ? bench_leaf(x, 1) : bench_values(x, 1), b = gradient ? bench_leaf(x, 2) : a;
    return OpCall{{{"mask", mask}, {"a", a}, {"b", b}}, [=] { return f(mask, a, b); }, gradient};
  };
  return {op, bench_shape(x), size, make};
}

void add_elementwise(std::vector<OpCase>& all, const char* size, const Dims& x) {
  all.push_back(function_case("maximum", size, {x, x}, [](const Values& v) { return maximum(v[0], v[1]); }));
  all.push_back(function_case(
      "less than", size, {x, x}, [](const Values& v) { return lt(v[0], v[1]); }, false));
  all.push_back(masked_case("where", size, x, true,
                            [](const Tensor& m, const Tensor& a, const Tensor& b) { return where(m, a, b); }));
  all.push_back(function_case("triu", size, {x}, [](const Values& v) { return triu(v[0]); }));
  all.push_back(function_case(
      "allclose", size, {x, x}, [](const Values& v) { return allclose(v[0], v[1]), v[0]; }, false));
  all.push_back(integer_case("integer product", size, bench_shape(x), x,
                             [](const Tensor& a, const Tensor& b) { return mul(a, b); }));
  // Draws and sequences, which read nothing.
  const Draw draw{1, 2};
  all.push_back(function_case(
      "uniform", size, {x}, [=](const Values& v) { return uniform_(v[0], 0, 1, draw), v[0]; }, false));
  all.push_back(function_case(
      "normal", size, {x}, [=](const Values& v) { return normal_(v[0], 0, 1, draw), v[0]; }, false));
  const int64_t n = x.numel();
  all.push_back({"arange", std::to_string(n), size, [=] {
                   const TensorOptions options{.dtype = bench_place().dtype, .device = bench_place().device};
                   return OpCall{{}, [=] { return arange(n, options); }, false};
                 }});
}

void add_reductions(std::vector<OpCase>& all, const char* size, const Dims& x) {
  all.push_back(function_case("var", size, {x}, [](const Values& v) { return var(v[0], Dims(1)); }));
  all.push_back(function_case("logsumexp", size, {x}, [](const Values& v) { return logsumexp(v[0], Dims(1)); }));
  all.push_back(near_one_case("prod", size, x, [](const Tensor& a) { return prod(a, Dims(1)); }));
  all.push_back(function_case(
      "any", size, {x}, [](const Values& v) { return any(v[0], Dims(1)); }, false));
  all.push_back(function_case(
      "argmax", size, {x}, [](const Values& v) { return argmax(v[0], 1); }, false));
  all.push_back(function_case("mse_loss", size, {x, x}, [](const Values& v) { return mse_loss(v[0], v[1]); }));
  all.push_back(function_case("bce_with_logits", size, {x, x},
                              [](const Values& v) { return binary_cross_entropy_with_logits(v[0], v[1]); }));
  const Dims rows(std::max<int64_t>(1, x.numel() / kClasses), kClasses);
  all.push_back(indexed_case("nll_loss", size, bench_shape(rows), rows, Dims(rows[0]), kClasses,
                             [](const Tensor& t, const Tensor& ids) { return nll_loss(t, ids); }));
}

void add_order(std::vector<OpCase>& all, const char* size, const Dims& x) {
  all.push_back(function_case("cumsum", size, {x}, [](const Values& v) { return cumsum(v[0], 1); }));
  all.push_back(near_one_case("cumprod", size, x, [](const Tensor& a) { return cumprod(a, 1); }));
  all.push_back(function_case("sort", size, {x}, [](const Values& v) { return sort(v[0]).values; }));
  all.push_back(function_case("topk", size, {x}, [](const Values& v) { return topk(v[0], kTop).values; }));
}

// The check of class numbers, which the losses make on a card.
OpCase find_outside_case(const char* size, int64_t n) {
  const auto make = [=] {
    const Tensor ids = bench_ids(Dims(n), kClasses, 1), found = Tensor::empty(Dims(1), DType::kI64, ids.device());
    const auto forward = [=] {
      launch(&Kernels::find_outside, FindOutsideArgs{ids.raw(), found.raw(), kClasses, -100});
      return found;
    };
    return OpCall{{{"ids", ids}}, forward, false};
  };
  return {"class numbers", std::to_string(n), size, make};
}

void add_places(std::vector<OpCase>& all, const char* size, const Dims& x) {
  all.push_back(indexed_case("scatter", size, bench_shape(x), x, x, x[1],
                             [](const Tensor& t, const Tensor& ids) { return scatter(t, 1, ids, t); }));
  const Dims places(x.numel() / 4);
  const auto make = [=] {
    const Tensor a = bench_leaf(x, 1), rows = bench_ids(places, x[0], 2), columns = bench_ids(places, x[1], 3);
    const auto forward = [=] { return index(a, {rows, columns}); };
    return OpCall{{{"a", a}, {"rows", rows}, {"columns", columns}}, forward, true};
  };
  all.push_back({"index by arrays", fmt::format("{} of {}", places[0], bench_shape(x)), size, make});
  all.push_back(masked_case("masked_select", size, x, false,
                            [](const Tensor& m, const Tensor& a, const Tensor&) { return masked_select(a, m); }));
  all.push_back(find_outside_case(size, x.numel()));
  all.push_back(function_case("conv1d, depthwise", size,
                              {Dims(1, kChannels, x.numel() / kChannels), Dims(kChannels, 1, kTaps)},
                              [](const Values& v) { return conv1d(v[0], v[1], {}, 1, kTaps - 1, 1, kChannels); }));
}

void add_quantization(std::vector<OpCase>& all, const char* size, const Dims& x) {
  all.push_back(function_case(
      "quantize", size, {x}, [](const Values& v) { return quantize(v[0], QuantFormat::kNvF4).codes; }, false));
  all.push_back({"dequantize", bench_shape(x), size, [=] {
                   const Quantized q = quantize(bench_values(x, 1), QuantFormat::kNvF4);
                   return OpCall{{}, [=] { return dequantize(q, bench_place().dtype); }, false};
                 }});
}

}  // namespace

void add_tensor_cases(std::vector<OpCase>& all, const char* size, int64_t elements) {
  const Dims x(elements / kBenchWidth, kBenchWidth);
  add_elementwise(all, size, x);
  add_reductions(all, size, x);
  add_order(all, size, x);
  add_places(all, size, x);
  add_quantization(all, size, x);
}

void add_integer_products(std::vector<OpCase>& all) {
  all.push_back(integer_case("integer matmul", "product", "512 x 512 x 512", Dims(512, 512),
                             [](const Tensor& a, const Tensor& b) { return matmul(a, b); }));
}

}  // namespace tally
