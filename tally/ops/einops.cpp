#include "tally/ops/einops.h"

#include "tally/base/error.h"
#include "tally/base/json.h"
#include "tally/ops/einops_pattern.h"
#include "tally/ops/einops_recipe.h"
#include "tally/ops/gather.h"
#include "tally/ops/reduce.h"
#include "tally/ops/reduce_plain.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

Tensor stacked(EinopsKind kind, const std::vector<Tensor>& list) {
  if (list.empty()) fail_type("{}: takes at least one tensor", name_of(kind));
  std::vector<Tensor> rows;
  for (const Tensor& x : list) {
    if (!x.defined()) fail("{}: an input is missing", name_of(kind));
    if (x.sizes() != list[0].sizes())
      fail_value("{}: tensors of a list have one shape, not {} and {}", name_of(kind), str(list[0].sizes()),
                 str(x.sizes()));
    rows.push_back(unsqueeze(x, 0));
  }
  return cat(rows, 0);
}

const ReduceFunction& reduction_of(std::string_view how) {
  static const std::pair<const char*, ReduceFunction> kAll[] = {
      {"sum", [](const Tensor& x, const Dims& axes) { return sum(x, axes); }},
      {"mean", [](const Tensor& x, const Dims& axes) { return mean(x, axes); }},
      {"max", [](const Tensor& x, const Dims& axes) { return max(x, axes); }},
      {"min", [](const Tensor& x, const Dims& axes) { return min(x, axes); }},
      {"prod", [](const Tensor& x, const Dims& axes) { return prod(x, axes); }},
      {"any", [](const Tensor& x, const Dims& axes) { return any(x, axes); }},
      {"all", [](const Tensor& x, const Dims& axes) { return all(x, axes); }},
  };
  std::string known;
  for (const auto& [name, f] : kAll) {
    if (how == name) return f;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  fail_value("reduce: unknown reduction {}; use one of {}", in_quotes(how), known);
}

}  // namespace

Tensor rearrange(const Tensor& x, std::string_view pattern, const AxisSizes& sizes) {
  return move_axes(x, recipe_of(EinopsKind::kRearrange, x, pattern, sizes).move);
}
Tensor rearrange(const std::vector<Tensor>& list, std::string_view pattern, const AxisSizes& sizes) {
  return rearrange(stacked(EinopsKind::kRearrange, list), pattern, sizes);
}

Tensor repeat(const Tensor& x, std::string_view pattern, const AxisSizes& sizes) {
  return move_axes(x, recipe_of(EinopsKind::kRepeat, x, pattern, sizes).move);
}
Tensor repeat(const std::vector<Tensor>& list, std::string_view pattern, const AxisSizes& sizes) {
  return repeat(stacked(EinopsKind::kRepeat, list), pattern, sizes);
}

// Reduced before anything is moved: the input is read as it lies, and what may have to be copied is small.
Tensor reduce(const Tensor& x, std::string_view pattern, const ReduceFunction& how, const AxisSizes& sizes) {
  const EinopsRecipe r = recipe_of(EinopsKind::kReduce, x, pattern, sizes);
  if (r.reduced.rank == 0) return move_axes(x, r.move);
  AxisMove apart = r.move;
  apart.full = apart.split;
  apart.from.rank = apart.merged.rank = apart.split.rank;
  AxisMove rest = r.move;
  rest.split.rank = rest.parts.rank = 0;
  int next = 0;  // of r.reduced
  for (int i = 0; i < apart.split.rank; ++i) {
    apart.from[i] = i, apart.merged[i] = 1;
    if (next < r.reduced.rank && r.reduced[next] == i)
      ++next;
    else
      push(rest.split, apart.split[i]), push(rest.parts, 1);
  }
  return move_axes(how(move_axes(x, apart), r.reduced), rest);
}
Tensor reduce(const Tensor& x, std::string_view pattern, std::string_view how, const AxisSizes& sizes) {
  return reduce(x, pattern, reduction_of(how), sizes);
}
Tensor reduce(const std::vector<Tensor>& list, std::string_view pattern, std::string_view how, const AxisSizes& sizes) {
  return reduce(stacked(EinopsKind::kReduce, list), pattern, how, sizes);
}

}  // namespace tally
