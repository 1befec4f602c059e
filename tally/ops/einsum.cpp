#include "tally/ops/einsum.h"

#include "tally/base/error.h"
#include "tally/ops/einops_pattern.h"
#include "tally/ops/einsum_pair.h"
#include "tally/ops/einsum_path.h"
#include "tally/ops/einsum_terms.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

AxisMask mask_of(const Dims& axes) {
  AxisMask m = 0;
  for (int i = 0; i < axes.rank; ++i) m |= AxisMask{1} << axes[i];
  return m;
}

// The axes that operand i keeps when it is contracted: without those of size 1 that broadcast and those that it alone
// has and the result has not.
struct Kept {
  AxisMask real;    // all but those that broadcast
  AxisMask needed;  // in the result or in another operand
};
std::vector<Kept> kept_axes(const EinsumAxes& axes, const std::vector<Dims>& shapes) {
  std::vector<Kept> all;
  for (size_t i = 0; i < shapes.size(); ++i) {
    AxisMask real = 0;
    for (int k = 0; k < shapes[i].rank; ++k) {
      const int64_t axis = axes.inputs[i][k];
      if (shapes[i][k] == axes.sizes[static_cast<size_t>(axis)]) real |= AxisMask{1} << axis;
    }
    all.push_back({real, 0});
  }
  for (size_t i = 0; i < all.size(); ++i) {
    AxisMask elsewhere = mask_of(axes.output);
    for (size_t j = 0; j < all.size(); ++j)
      if (j != i) elsewhere |= all[j].real;
    all[i].needed = all[i].real & elsewhere;
  }
  return all;
}

// x with every axis once: repeated ones are walked along their diagonal; those not in `real` have size 1 and are left
// out. A view.
Labelled distinct(const Tensor& x, const Dims& axes, AxisMask real) {
  Labelled y{x, axes};
  for (int i = 0; i < y.axes.rank; ++i) {
    const int first = y.place(y.axes[i]);
    if (first == i) continue;
    y.tensor = diagonal(y.tensor, 0, first, i);
    Dims rest;
    for (int k = 0; k < y.axes.rank; ++k)
      if (k != first && k != i) rest[rest.rank++] = y.axes[k];
    rest[rest.rank++] = y.axes[i];
    y.axes = rest;
    i = -1;  // anew: there may be a third
  }
  Dims size, kept;
  for (int i = 0; i < y.axes.rank; ++i) {
    if ((real >> y.axes[i] & 1) == 0) continue;
    size[size.rank++] = y.tensor.sizes()[i];
    kept[kept.rank++] = y.axes[i];
  }
  if (kept.rank < y.axes.rank) y = {view(y.tensor, size), kept};
  return y;
}

Labelled prepared(const Tensor& x, const Dims& axes, const Kept& kept) {
  Labelled y = distinct(x, axes, kept.real);
  Dims summed, left;
  for (int i = 0; i < y.axes.rank; ++i) {
    if ((kept.needed >> y.axes[i] & 1) != 0)
      left[left.rank++] = y.axes[i];
    else
      summed[summed.rank++] = i;
  }
  if (summed.rank == 0) return y;
  return {sum(y.tensor, summed), left};
}

// All that does not depend on values.
struct Plan {
  EinsumAxes axes;
  std::vector<Kept> kept;
  std::vector<AxisMask> needed;
  EinsumPath path;
};

thread_local PatternCache<Plan> the_plans;

// Made once for a pattern and shapes.
std::shared_ptr<const Plan> plan_of(std::string_view pattern, const std::vector<Dims>& shapes) {
  std::string key;  // shapes, each behind its rank, then the pattern: no two cases have the same
  const auto append = [&](const void* data, size_t bytes) { key.append(static_cast<const char*>(data), bytes); };
  const size_t count = shapes.size();
  append(&count, sizeof count);
  for (const Dims& shape : shapes) {
    append(&shape.rank, sizeof shape.rank);
    append(shape.v, sizeof shape.v[0] * static_cast<size_t>(shape.rank));
  }
  key += pattern;
  return the_plans.get(key, [&](std::string_view) {
    Plan plan;
    plan.axes = einsum_axes(pattern, shapes);
    plan.kept = kept_axes(plan.axes, shapes);
    for (const Kept& k : plan.kept) plan.needed.push_back(k.needed);
    plan.path = einsum_path(plan.needed, mask_of(plan.axes.output), plan.axes.sizes);
    return plan;
  });
}

}  // namespace

Tensor einsum(const std::vector<Tensor>& operands, std::string_view pattern) {
  if (operands.empty()) fail_value("einsum: takes at least one tensor");
  std::vector<Dims> shapes;
  shapes.reserve(operands.size());
  for (const Tensor& x : operands) {
    if (!x.defined()) fail("einsum: an input is missing");
    const Tensor& first = operands[0];
    if (x.dtype() != first.dtype() || x.device() != first.device())
      fail("einsum: operands of {} on {} and {} on {} differ", name_of(first.dtype()), name_of(first.device()),
           name_of(x.dtype()), name_of(x.device()));
    shapes.push_back(x.sizes());
  }
  const std::shared_ptr<const Plan> plan = plan_of(pattern, shapes);
  std::vector<Labelled> terms;
  terms.reserve(2 * operands.size());
  for (size_t i = 0; i < operands.size(); ++i)
    terms.push_back(prepared(operands[i], plan->axes.inputs[i], plan->kept[i]));
  const std::vector<EinsumPath::Step>& steps = plan->path.steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    Labelled &a = terms[static_cast<size_t>(steps[i].a)], &b = terms[static_cast<size_t>(steps[i].b)];
    Labelled made = contract(a, b, steps[i].result, i + 1 == steps.size() ? plan->axes.output : Dims());
    a = {}, b = {};  // what is in between is freed as soon as it was used
    terms.push_back(std::move(made));
  }
  return in_order(terms.back(), plan->axes.output);
}

Tensor einsum(std::string_view pattern, const std::vector<Tensor>& operands) { return einsum(operands, pattern); }

EinsumCost einsum_cost(std::string_view pattern, const std::vector<Dims>& shapes) {
  if (shapes.empty()) fail_value("einsum: takes at least one tensor");
  const std::shared_ptr<const Plan> plan = plan_of(pattern, shapes);
  const EinsumAxes& axes = plan->axes;
  const EinsumPath& path = plan->path;
  std::vector<AxisMask> masks = plan->needed;
  const auto names = [&](AxisMask mask) {
    std::string s;
    for (size_t i = 0; i < axes.names.size(); ++i)
      if ((mask >> i & 1) != 0) s += (s.empty() ? "" : " ") + axes.names[i];
    return s;
  };
  EinsumCost cost;
  cost.flops = path.flops, cost.largest = path.largest;
  for (const EinsumPath::Step& step : path.steps) {
    const AxisMask a = masks[static_cast<size_t>(step.a)], b = masks[static_cast<size_t>(step.b)];
    cost.steps.push_back(
        {step.a, step.b, fmt::format("{}, {} -> {}", names(a), names(b), names(step.result)), step.flops});
    masks.push_back(step.result);
  }
  return cost;
}

}  // namespace tally
