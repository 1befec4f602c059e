// One run of backward over the tape, and the hooks on its way. Nodes run after all their users (a depth-first order,
// turned around), so the gradients of a node are complete when its turn comes; leaves have their turn too.
#include <algorithm>
#include <atomic>

#include "tally/base/error.h"
#include "tally/core/custom_node.h"
#include "tally/core/node_hooks.h"
#include "tally/core/tape.h"

namespace tally {

class BackwardRun {
 public:
  BackwardRun(AddGradient add, bool retain_graph) : add_(add), retain_(retain_graph), number_(next_number()) {}
  BackwardRun(const BackwardRun&) = delete;
  BackwardRun& operator=(const BackwardRun&) = delete;
  ~BackwardRun();

  // Gradients of these alone are wanted. Before find().
  void want(const std::vector<Tensor>& inputs);
  void find(const std::vector<Tensor>& roots);
  void seed(const Tensor& root, Tensor gradient);
  void run();
  std::vector<Tensor> wanted(const std::vector<Tensor>& inputs);

  bool retains() const { return retain_; }
  bool needs(const Ref<Node>& node) const { return node && (!limited_ || node->needed_ == number_); }
  void add(Tensor& into, Tensor&& g) const { add_(into, std::move(g)); }

 private:
  struct Wanted {
    Ref<Node> node;
    int output;
    Tensor gradient;
  };
  struct Stash {  // grad() of a leaf while this run's gradient takes its place
    Ref<Node> node;
    Tensor gradient;
  };
  static uint64_t next_number() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }
  void meet(const Ref<Node>& node, std::vector<Node*>& stack);
  void call(Node& node);
  void show(Node& node);
  void finish_leaf(Node& node);
  void merge(Stash& s);

  AddGradient add_;
  bool retain_, limited_ = false;
  uint64_t number_;
  std::vector<Ref<Node>> order_;  // inputs before their users
  std::vector<Wanted> wanted_;
  std::vector<Stash> stashes_;
};

bool Backward::needs(int i) const { return run_.needs(source(i)); }

const Tensor& Backward::saved(int i) const { return node_.saved_begin()[i].get(node_.op_, run_.retains()); }

Tensor Backward::take_saved(int i) { return run_.retains() ? saved(i) : node_.saved_begin()[i].take(node_.op_); }

void Backward::add(int i, Tensor gradient, bool accumulated) {
  if (accumulated || !needs(i)) return;
  Tensor& there = slot(i);
  if (there.defined() || gradient.dtype() != gradient_dtype(i)) {
    run_.add(there, std::move(gradient));
  } else {
    there = std::move(gradient);
  }
}

// After an error: no half gradients stay behind, and no grad() is lost.
BackwardRun::~BackwardRun() {
  for (const Ref<Node>& node : order_)
    if (!node->is_leaf())
      for (Tensor& g : node->grads()) g = {};
  for (Stash& s : stashes_) s.node->leaf_grad() = std::move(s.gradient);
}

void BackwardRun::want(const std::vector<Tensor>& inputs) {
  limited_ = true;
  for (const Tensor& x : inputs) {
    if (!x.requires_grad())
      fail("grad: one of the inputs does not require a gradient: a tensor of shape {}", str(x.sizes()));
    x.node()->needed_ = number_;
    const auto same = [&](const Wanted& w) { return w.node == x.node() && w.output == x.output_index(); };
    if (std::none_of(wanted_.begin(), wanted_.end(), same)) wanted_.push_back({x.node(), x.output_index(), {}});
  }
}

void BackwardRun::meet(const Ref<Node>& node, std::vector<Node*>& stack) {
  node->met_ = number_, node->next_ = 0;
  if (node->spent_ && node->needed_ != number_)
    fail(
        "Trying to backward through the graph a second time: the backward of {} ran and what it saved is gone; give "
        "retain_graph=true to the backward before this one",
        node->op_);
  // A leaf's gradient of this run is looked at before it joins that of runs before.
  if (node->is_leaf() && ((node->hooks_ && !node->hooks_->on_gradient.empty()) || node->needed_ == number_))
    stashes_.push_back({node, std::move(node->leaf_grad())});
  stack.push_back(node.get());
}

void BackwardRun::find(const std::vector<Tensor>& roots) {
  std::vector<Node*> stack;
  for (const Tensor& root : roots) {
    if (root.node()->met_ == number_) continue;
    meet(root.node(), stack);
    while (!stack.empty()) {
      Node* const node = stack.back();
      if (node->next_ < node->inputs_) {
        const Ref<Node>& input = node->edge_begin()[node->next_++].node;
        if (input && input->met_ != number_) meet(input, stack);
        continue;
      }
      if (limited_ && node->needed_ != number_)
        for (const Node::Edge& e : node->edges())
          if (e.node && e.node->needed_ == number_) node->needed_ = number_;
      stack.pop_back();
      order_.emplace_back(node);
    }
  }
}

void BackwardRun::seed(const Tensor& root, Tensor gradient) {
  if (gradient.sizes() != root.sizes())
    fail("backward: a gradient of shape {} for a tensor of shape {}", str(gradient.sizes()), str(root.sizes()));
  const DType wide = gradient_dtype_of(root.dtype(), root.node()->is_leaf());
  if (gradient.device() != root.device() || (gradient.dtype() != root.dtype() && gradient.dtype() != wide))
    fail("backward: a {} gradient on {} for a {} tensor on {}", name_of(gradient.dtype()), name_of(gradient.device()),
         name_of(root.dtype()), name_of(root.device()));
  if (!needs(root.node())) return;
  Tensor& there = root.node()->grads()[static_cast<size_t>(root.output_index())];
  if (there.defined() || gradient.dtype() != wide) {
    add_(there, std::move(gradient));
  } else {
    there = std::move(gradient);
  }
}

// The gradients of a node are complete: hooks see them, then they are kept where that was asked for.
void BackwardRun::show(Node& node) {
  const std::shared_ptr<Hooks> hooks = node.hooks_;
  const std::span<Tensor> grads = node.grads();
  const std::vector<Hooks::OnGradient> calls = hooks->on_gradient;  // a hook may remove itself
  for (const Hooks::OnGradient& h : calls) {
    Tensor& g = grads[static_cast<size_t>(h.output)];
    if (!g.defined()) continue;
    Tensor other = h.call(g.detach());
    if (!other.defined()) continue;
    if (other.sizes() != g.sizes() || other.dtype() != g.dtype() || other.device() != g.device())
      fail("a hook returned a {} gradient of shape {} for one of {} and shape {}", name_of(other.dtype()),
           str(other.sizes()), name_of(g.dtype()), str(g.sizes()));
    g = other.detach();
  }
  for (Hooks::Kept& k : hooks->kept) {
    const Tensor& g = grads[static_cast<size_t>(k.output)];
    if (g.defined()) k.gradient.defined() ? add_(k.gradient, Tensor(g)) : static_cast<void>(k.gradient = g);
  }
}

// grad() of a leaf is what it was and what this run brought.
void BackwardRun::merge(Stash& s) {
  Tensor& now = s.node->leaf_grad();
  if (s.gradient.defined() && now.defined()) add_(s.gradient, std::move(now));
  if (s.gradient.defined()) now = std::move(s.gradient);
  s.gradient = {};
}

void BackwardRun::finish_leaf(Node& node) {
  if (limited_ ? node.needed_ != number_ : !node.hooks_) return;
  const bool reached = node.leaf_grad().defined();
  if (node.hooks_) show(node);
  const auto s = std::find_if(stashes_.begin(), stashes_.end(), [&](const Stash& x) { return x.node.get() == &node; });
  if (limited_) {
    for (Wanted& w : wanted_)
      if (w.node.get() == &node) w.gradient = std::move(node.leaf_grad());
    return;  // the stash comes back at the end
  }
  if (s != stashes_.end()) {
    merge(*s);
    stashes_.erase(s);
  }
  if (!reached || !node.hooks_) return;
  const std::vector<Hooks::AfterAccumulate> calls = node.hooks_->after;
  for (const Hooks::AfterAccumulate& h : calls) {
    Tensor leaf = h.leaf;
    leaf.set_node(Ref<Node>(&node));
    h.call(leaf);
  }
}

void BackwardRun::call(Node& node) {
  if (node.hooks_) show(node);
  if (limited_) {
    bool further = false;
    for (const Node::Edge& e : node.edges()) further = further || needs(e.node);
    for (Wanted& w : wanted_)
      if (w.node.get() == &node) w.gradient = node.grads()[static_cast<size_t>(w.output)];
    if (!further) return;
  }
  bool reached = false;
  for (const Tensor& g : node.grads()) reached = reached || g.defined();
  if (reached) {
    Ledger::current().set_scope(node.scope_);
    Backward b(node, *this);
    node.custom_ ? node.custom_->backward(b) : node.call_(node.attributes(), b);
  }
  node.spent_ = !retain_;
  for (Saved& s : node.saved()) retain_ ? s.put_back() : s.clear();
  if (retain_) return;
  for (Node::Edge& e : node.edges()) e.node = {};
  node.custom_.reset();
}

void BackwardRun::run() {
  SavedHomeGuard none(nullptr);
  NoGrad quiet;
  PhaseGuard phase("backward");
  ScopeGuard scope("");  // restores the scope when a backward throws
  while (!order_.empty()) {
    const Ref<Node> node = std::move(order_.back());
    order_.pop_back();
    if (node->is_leaf()) {
      finish_leaf(*node);
      continue;
    }
    if (!limited_ || node->needed_ == number_) call(*node);
    for (Tensor& g : node->grads())
      if (g.defined()) g = {};
  }
}

std::vector<Tensor> BackwardRun::wanted(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> all;
  for (const Tensor& x : inputs)
    for (const Wanted& w : wanted_)
      if (w.node == x.node() && w.output == x.output_index()) all.push_back(w.gradient);
  return all;
}

void run_backward(const Tensor& loss, Tensor gradient, AddGradient add, bool retain_graph) {
  if (!loss.requires_grad())
    fail(
        "backward: nothing that led to this tensor requires a gradient: it does not require grad and does not have a "
        "grad_fn");
  BackwardRun run(add, retain_graph);
  run.find({loss});
  run.seed(loss, std::move(gradient));
  run.run();
}

std::vector<Tensor> run_grad(const std::vector<Tensor>& outputs, std::vector<Tensor> gradients,
                             const std::vector<Tensor>& inputs, AddGradient add, bool retain_graph) {
  for (const Tensor& y : outputs)
    if (!y.requires_grad()) fail("grad: nothing that led to an output of shape {} requires a gradient", str(y.sizes()));
  BackwardRun run(add, retain_graph);
  run.want(inputs);
  run.find(outputs);
  for (size_t i = 0; i < outputs.size(); ++i) run.seed(outputs[i], std::move(gradients[i]));
  run.run();
  return run.wanted(inputs);
}

}  // namespace tally
