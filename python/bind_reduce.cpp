// Reductions: over all axes, one, or several.
#include "python/bind.h"
#include "python/pairs.h"
#include "tally/ops/arithmetic.h"
#include "tally/ops/reduce.h"
#include "tally/ops/reduce_plain.h"

namespace tally::py {
namespace {

// torch.max(x), torch.max(x, dim) -> (values, indices), torch.max(x, other).
template <class All, class One, class Pair>
void extreme(Ops& o, const char* name, All all, One one, Pair pair, const char* doc) {
  o.both(name, all, doc);
  o.both(name, one, "(values, indices) along dim.", "dim"_a, "keepdim"_a = false);
  o.both(name, pair, "The same of two tensors, element by element.", "other"_a);
}

// The same by NumPy's names, as PyTorch takes them too: x.sum(axis=0, keepdims=True).
template <class F>
void by_axis(Ops& o, const char* name, F f, const char* doc) {
  o.both(name, f, doc, nb::kw_only(), "axis"_a, "keepdims"_a = false);
}

void numpy_names(Ops& o) {
  by_axis(
      o, "sum", [](const Tensor& x, const Dims& axis, bool keep) { return sum(x, axis, keep); }, "By NumPy's names.");
  by_axis(
      o, "prod", [](const Tensor& x, const Dims& axis, bool keep) { return prod(x, axis, keep); }, "By NumPy's names.");
  by_axis(
      o, "mean", [](const Tensor& x, const Dims& axis, bool keep) { return mean(x, axis, keep); }, "By NumPy's names.");
  by_axis(o, "amax", amax, "By NumPy's names.");
  by_axis(o, "amin", amin, "By NumPy's names.");
  by_axis(o, "any", any, "By NumPy's names.");
  by_axis(o, "all", tally::all, "By NumPy's names.");
  by_axis(o, "argmax", argmax, "By NumPy's names.");
  by_axis(o, "argmin", argmin, "By NumPy's names.");
  by_axis(
      o, "max", [](const Tensor& x, int axis, bool keep) { return max(x, axis, keep); },
      "(values, indices) by NumPy's names.");
  by_axis(
      o, "min", [](const Tensor& x, int axis, bool keep) { return min(x, axis, keep); },
      "(values, indices) by NumPy's names.");
  by_axis(
      o, "var", [](const Tensor& x, const Dims& axis, bool keep) { return var(x, axis, 1, keep); },
      "By NumPy's names.");
  by_axis(
      o, "std", [](const Tensor& x, const Dims& axis, bool keep) { return tally::std(x, axis, 1, keep); },
      "By NumPy's names.");
}

double correction_of(bool unbiased, std::optional<double> correction) { return correction.value_or(unbiased ? 1 : 0); }

}  // namespace

void bind_reduce(Ops& o) {
  const auto dim = nb::arg("dim").none() = Dims();  // all axes
  o.both("sum", tally::sum, "The sum over dim, over all axes without it; int64 of integers.", dim, "keepdim"_a = false,
         nb::kw_only(), "dtype"_a = nb::none());
  o.both("prod", prod, "The product over dim.", dim, "keepdim"_a = false, nb::kw_only(), "dtype"_a = nb::none());
  o.both("mean", mean, "The mean over dim, of floats.", dim, "keepdim"_a = false, nb::kw_only(),
         "dtype"_a = nb::none());
  o.both("amax", amax, "The maximum over dim; equal ones share the gradient.", dim, "keepdim"_a = false);
  o.both("amin", amin, "The minimum over dim.", dim, "keepdim"_a = false);
  extreme(
      o, "max", [](const Tensor& x) { return max(x, Dims{}); },
      [](const Tensor& x, int dim, bool keepdim) { return max(x, dim, keepdim); },
      [](const Tensor& a, const Tensor& b) { return maximum(a, b); }, "The largest of all elements.");
  extreme(
      o, "min", [](const Tensor& x) { return min(x, Dims{}); },
      [](const Tensor& x, int dim, bool keepdim) { return min(x, dim, keepdim); },
      [](const Tensor& a, const Tensor& b) { return minimum(a, b); }, "The smallest of all elements.");
  o.both("argmax", argmax, "The place of the first maximum along dim, or in all of x.", "dim"_a = nb::none(),
         "keepdim"_a = false);
  o.both("argmin", argmin, "The place of the first minimum.", "dim"_a = nb::none(), "keepdim"_a = false);
  o.both("any", any, "Whether one is not 0.", dim, "keepdim"_a = false);
  o.both("all", tally::all, "Whether none is 0.", dim, "keepdim"_a = false);
  numpy_names(o);
  const auto var_of = [](const Tensor& x, const Dims& d, bool unbiased, bool keepdim, std::optional<double> c) {
    return var(x, d, correction_of(unbiased, c), keepdim);
  };
  const auto std_of = [](const Tensor& x, const Dims& d, bool unbiased, bool keepdim, std::optional<double> c) {
    return tally::std(x, d, correction_of(unbiased, c), keepdim);
  };
  o.both("var", var_of, "sum((x - mean)^2) / (n - correction); correction is 1 unless unbiased is False.", dim,
         "unbiased"_a = true, "keepdim"_a = false, nb::kw_only(), "correction"_a = nb::none());
  o.both("std", std_of, "The root of var().", dim, "unbiased"_a = true, "keepdim"_a = false, nb::kw_only(),
         "correction"_a = nb::none());
  o.both("logsumexp", logsumexp, "log(sum(exp(x))) without overflow.", "dim"_a, "keepdim"_a = false);
  o.both("norm", norm, "sum(|x|^p)^(1/p).", "p"_a = 2.0, dim, "keepdim"_a = false);
}

}  // namespace tally::py
