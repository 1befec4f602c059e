#include "tally/core/tape.h"

#include <unordered_map>

#include "tally/base/error.h"

namespace tally {

namespace {

thread_local bool no_grad = false;

// Nodes whose last owner is gone wait here, so that a chain of a million ops is freed in a loop, not by recursion.
thread_local std::vector<Ref<Node>>* doomed = nullptr;

}  // namespace

void retain(Node* node) { node->references.fetch_add(1, std::memory_order_relaxed); }
void release(Node* node) {
  if (node->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete node;
}

NoGrad::NoGrad() : previous_(std::exchange(no_grad, true)) {}
NoGrad::~NoGrad() { no_grad = previous_; }
bool NoGrad::active() { return no_grad; }

bool needs_grad(TensorRefs inputs) {
  if (no_grad) return false;
  for (const Tensor& t : inputs)
    if (t.requires_grad()) return true;
  return false;
}

Ref<Node> Node::make_leaf() {
  Ref<Node> node(new Node);
  node->grads_.resize(1);
  return node;
}

Node::~Node() {
  std::vector<Ref<Node>> local;
  const bool outermost = doomed == nullptr;
  if (outermost) doomed = &local;
  for (Edge& e : inputs_)
    if (e.node) doomed->push_back(std::move(e.node));
  if (!outermost) return;
  while (!local.empty()) {
    Ref<Node> next = std::move(local.back());
    local.pop_back();
  }
  doomed = nullptr;
}

Recorder::Recorder(std::initializer_list<Tensor*> outputs, TensorRefs inputs, std::initializer_list<Tensor> saved)
    : node_(new Node) {
  node_->saved_.reserve(saved.size());
  for (const Tensor& t : saved) node_->saved_.push_back(t.detach());
  node_->inputs_.reserve(inputs.size());
  node_->metas_.reserve(inputs.size());
  for (const Tensor& t : inputs) {
    node_->inputs_.push_back({t.node(), t.output_index()});
    node_->metas_.push_back(t.defined() ? InputMeta{t.sizes(), t.dtype(), t.device()} : InputMeta{});
  }
  node_->grads_.resize(outputs.size());
  node_->scope_ = Ledger::current().scope();
  int i = 0;
  for (Tensor* t : outputs) t->set_node(node_, i++);
}

Category Backward::category(int i) const {
  const Ref<Node>& node = node_.inputs_[i].node;
  return node && node->is_leaf() ? Category::kGradient : Category::kActivation;
}

DType gradient_dtype_of(DType dtype, bool leaf) { return leaf && is_half(dtype) ? DType::kF32 : dtype; }

DType Backward::gradient_dtype(int i) const {
  const Ref<Node>& node = node_.inputs_[i].node;
  return gradient_dtype_of(input(i).dtype, node && node->is_leaf());
}

Tensor Backward::empty(int i) const {
  const InputMeta& m = input(i);
  const bool widened = m.dtype != gradient_dtype(i);
  return Tensor::empty(m.size, m.dtype, m.device, widened ? Category::kActivation : category(i));
}

Tensor Backward::target(int i, bool& accumulate) {
  TALLY_ASSERT(needs(i));
  Tensor& there = slot(i);
  accumulate = there.defined() && there.unique_storage() && there.is_contiguous();
  return accumulate ? there : Tensor::empty(input(i).size, gradient_dtype(i), input(i).device, category(i));
}

void Backward::add(int i, Tensor gradient, bool accumulated) {
  if (!needs(i) || accumulated) return;
  Tensor& there = slot(i);
  if (there.defined() || gradient.dtype() != gradient_dtype(i)) {
    add_(there, std::move(gradient));
  } else {
    there = std::move(gradient);
  }
}

std::vector<Ref<Node>> Node::topological_order(const Ref<Node>& root) {
  std::vector<Ref<Node>> order;
  std::unordered_map<Node*, size_t> next;  // input to visit next; present once seen
  std::vector<Ref<Node>> stack{root};
  next[root.get()] = 0;
  while (!stack.empty()) {
    Node* node = stack.back().get();
    size_t& i = next[node];
    if (i < node->inputs_.size()) {
      const Ref<Node>& input = node->inputs_[i++].node;
      if (input && !next.contains(input.get())) {
        next[input.get()] = 0;
        stack.push_back(input);
      }
    } else {
      order.push_back(std::move(stack.back()));
      stack.pop_back();
    }
  }
  return order;
}

void run_backward(const Tensor& loss, Tensor gradient, void (*add)(Tensor&, Tensor)) {
  if (!loss.requires_grad()) fail("backward: nothing that led to this tensor requires a gradient");
  if (gradient.sizes() != loss.sizes())
    fail("backward: a gradient of shape {} for a tensor of shape {}", str(gradient.sizes()), str(loss.sizes()));
  PhaseGuard phase("backward");
  ScopeGuard scope("");  // restores the scope when a backward throws
  Ledger& ledger = Ledger::current();
  std::vector<Ref<Node>> order = Node::topological_order(loss.node());
  Tensor& seed = loss.node()->grads_[loss.output_index()];
  if (seed.defined() || gradient.dtype() != gradient_dtype_of(loss.dtype(), loss.node()->is_leaf())) {
    add(seed, std::move(gradient));
  } else {
    seed = std::move(gradient);
  }
  while (!order.empty()) {
    const Ref<Node> node = std::move(order.back());
    order.pop_back();
    if (node->is_leaf()) continue;
    if (node->spent_) fail("backward: this graph was already run and its saved tensors are gone");
    node->spent_ = true;
    bool reached = false;
    for (const Tensor& g : node->grads_) reached = reached || g.defined();
    if (reached) {
      ledger.set_scope(node->scope_);
      Backward b(*node, add);
      node->call_(node->attributes_, b);
    }
    node->saved_.clear();
    for (Tensor& g : node->grads_) g = {};
    node->inputs_.clear();
  }
}

}  // namespace tally
