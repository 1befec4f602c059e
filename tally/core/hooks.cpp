#include "tally/core/hooks.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/node_hooks.h"
#include "tally/core/tape.h"

namespace tally {

const std::shared_ptr<Hooks>& Node::hooks() {
  if (!hooks_) hooks_ = std::make_shared<Hooks>();
  return hooks_;
}

Tensor Node::kept_grad(int output) {
  if (is_leaf()) return leaf_grad();
  if (hooks_)
    for (const Hooks::Kept& k : hooks_->kept)
      if (k.output == output) return k.gradient;
  return {};
}

void Node::retain_grad(int output) {
  if (!retains_grad(output)) hooks()->kept.push_back({output, {}});
}

bool Node::retains_grad(int output) const {
  return hooks_ && std::any_of(hooks_->kept.begin(), hooks_->kept.end(),
                               [&](const Hooks::Kept& k) { return k.output == output; });
}

HookHandle register_hook(const Tensor& x, std::function<Tensor(const Tensor& gradient)> f) {
  if (!x.requires_grad()) fail("register_hook: takes a tensor that requires a gradient");
  const std::shared_ptr<Hooks>& hooks = x.node()->hooks();
  hooks->on_gradient.push_back({hooks->next_id, x.output_index(), std::move(f)});
  return {hooks, hooks->next_id++};
}

HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, std::function<void(Tensor& leaf)> f) {
  if (!leaf.requires_grad() || !leaf.is_leaf())
    fail("register_post_accumulate_grad_hook: takes a leaf tensor that requires a gradient");
  const std::shared_ptr<Hooks>& hooks = leaf.node()->hooks();
  hooks->after.push_back({hooks->next_id, leaf.detach(), std::move(f)});
  return {hooks, hooks->next_id++};
}

void HookHandle::remove() {
  if (const std::shared_ptr<Hooks> hooks = hooks_.lock()) {
    std::erase_if(hooks->on_gradient, [&](const Hooks::OnGradient& h) { return h.id == id_; });
    std::erase_if(hooks->after, [&](const Hooks::AfterAccumulate& h) { return h.id == id_; });
  }
  hooks_.reset();
}

}  // namespace tally
