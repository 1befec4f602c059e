#include "tally/nn/module.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"

namespace tally {

Parameter::Parameter(const Tensor& values, bool requires_grad) : Tensor(values.detach()) {
  if (!values.defined()) fail("Parameter: takes a tensor, not an undefined one");
  if (category() != Category::kParameter) {
    Tensor own = Tensor::empty(sizes(), dtype(), device(), Category::kParameter);
    copy_(own, *this);
    Tensor::operator=(std::move(own));
  }
  if (requires_grad) set_requires_grad();
}

StateDict state_dict(const std::vector<Param>& params) {
  StateDict all;
  for (const Param& p : params) all.emplace_back(p.name, p.tensor->detach());
  return all;
}

namespace {

std::string quoted(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "\"" : ", \"") + n + "\"";
  return all;
}

// What keeps `from` from being copied into p; empty when nothing does.
std::string misfit(const Param& p, const Tensor& from) {
  const Tensor& into = *p.tensor;
  if (!from.defined()) return fmt::format(" {} is undefined in the state_dict.", p.name);
  if (from.sizes() != into.sizes())
    return fmt::format(
        " size mismatch for {}: copying a param with shape {} from checkpoint, the shape in current model is {}.",
        p.name, str(from.sizes()), str(into.sizes()));
  if (from.dtype() != into.dtype() && !(is_float(from.dtype()) && is_float(into.dtype())))
    return fmt::format(" dtype mismatch for {}: {} in the state_dict, {} in the model.", p.name, name_of(from.dtype()),
                       name_of(into.dtype()));
  if (from.device().kind == DeviceKind::kMeta && into.device().kind != DeviceKind::kMeta)
    return fmt::format(" {} is on meta in the state_dict and holds no values.", p.name);
  return {};
}

}  // namespace

LoadedKeys load_state_dict(const std::vector<Param>& params, const StateDict& state, bool strict) {
  std::unordered_map<std::string, const Tensor*> found;
  for (const auto& [name, tensor] : state) found[name] = &tensor;
  LoadedKeys keys;
  std::vector<std::pair<const Param*, const Tensor*>> pairs;
  std::string differences;
  for (const Param& p : params) {
    const auto it = found.find(p.name);
    if (it == found.end()) {
      keys.missing.push_back(p.name);
      continue;
    }
    differences += misfit(p, *it->second);
    pairs.emplace_back(&p, it->second);
    found.erase(it);
  }
  for (const auto& [name, tensor] : state)
    if (found.contains(name)) keys.unexpected.push_back(name);
  std::string message;
  if (strict && !keys.unexpected.empty())
    message += " Unexpected key(s) in state_dict: " + quoted(keys.unexpected) + ".";
  if (strict && !keys.missing.empty()) message += " Missing key(s) in state_dict: " + quoted(keys.missing) + ".";
  message += differences;
  if (!message.empty()) fail("Error(s) in loading state_dict:{}", message);
  for (const auto& [p, from] : pairs)
    if (!p->tensor->shares_storage(*from)) copy_(p->tensor->detach(), from->detach());
  return keys;
}

void zero_grad(const std::vector<Param>& params, bool set_to_none) {
  for (const Param& p : params) {
    if (!p.tensor->requires_grad()) continue;
    Tensor g = p.tensor->grad();
    if (!g.defined()) continue;
    if (set_to_none) {
      p.tensor->set_grad({});
    } else {
      fill_(g, 0.0);
    }
  }
}

namespace {

Tensor with_dtype(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype || !is_float(x.dtype())) return x;
  Tensor y = Tensor::empty(x.sizes(), dtype, x.device(), x.category());
  copy_(y, x);
  return y;
}

// Replaces every parameter by what `change` makes of it, once for those that are one tensor.
void replace(const std::vector<Param>& params, const std::function<Tensor(const Tensor&)>& change) {
  NoGrad quiet;
  std::vector<std::pair<Tensor, Tensor>> done;  // old, new
  for (const Param& p : params) {
    Tensor& x = *p.tensor;
    const auto same = [&](const auto& pair) {
      const Tensor& old = pair.first;
      return old.shares_storage(x) && old.sizes() == x.sizes() && old.storage_offset() == x.storage_offset() &&
             old.strides() == x.strides() && old.node() == x.node();
    };
    const auto it = std::find_if(done.begin(), done.end(), same);
    if (it != done.end()) {
      x = it->second;
      continue;
    }
    Tensor y = change(x.detach());
    if (!y.shares_storage(x)) {
      if (x.requires_grad()) y.set_requires_grad();
      if (const Tensor g = x.grad(); x.requires_grad() && g.defined()) y.set_grad(change(g));
    } else {
      y = x;
    }
    done.emplace_back(x, y);
    x = y;
  }
}

}  // namespace

void to(const std::vector<Param>& params, Device device) {
  replace(params, [&](const Tensor& x) { return to(x, device); });
}

void to(const std::vector<Param>& params, DType dtype) {
  if (!is_float(dtype)) fail_type("to: parameters are floats, not {}", name_of(dtype));
  replace(params, [&](const Tensor& x) { return with_dtype(x, dtype); });
}

}  // namespace tally
