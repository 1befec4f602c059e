// Hooks: functions that see gradients during backward.
#pragma once

#include <functional>
#include <memory>

#include "tally/core/tensor.h"

namespace tally {

struct Hooks;

class HookHandle {
 public:
  HookHandle() = default;
  void remove();  // nothing when the tensor is gone or it was removed before

 private:
  friend HookHandle register_hook(const Tensor&, std::function<Tensor(const Tensor&)>);
  friend HookHandle register_post_accumulate_grad_hook(const Tensor&, std::function<void(Tensor&)>);
  HookHandle(const std::shared_ptr<Hooks>& hooks, int id) : hooks_(hooks), id_(id) {}
  std::weak_ptr<Hooks> hooks_;
  int id_ = 0;
};

// Calls f in backward with the gradient of x once it is complete: all that flows into x in this run, for a leaf before
// it is added to grad(). A tensor that f returns, of the same shape, dtype and device, takes its place; an undefined
// one changes nothing. Hooks run in the order of registration. x must require a gradient.
HookHandle register_hook(const Tensor& x, std::function<Tensor(const Tensor& gradient)> f);

// Calls f with the leaf after a backward has added to its grad(): f may step and clear it there.
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, std::function<void(Tensor& leaf)> f);

}  // namespace tally
