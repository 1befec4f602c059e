#include "tally/core/tape.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/custom_node.h"
#include "tally/core/node_hooks.h"

namespace tally {

namespace {

thread_local bool no_grad = false;

// Nodes whose last owner is gone wait here, so that a chain of a million ops is freed in a loop, not by recursion.
thread_local std::vector<Ref<Node>>* doomed = nullptr;

// Memory of nodes: freed blocks wait by size for the next node of that size. Under the address sanitizer every node is
// an allocation of its own.
class NodeBlocks {
 public:
  NodeBlocks() { alive = true; }
  NodeBlocks(const NodeBlocks&) = delete;
  NodeBlocks& operator=(const NodeBlocks&) = delete;
  ~NodeBlocks() {
    alive = false;
    for (Free* p : free_)
      while (p != nullptr) ::operator delete(std::exchange(p, p->next));
  }
  // Nodes of static tensors die after this thread's blocks.
  static thread_local bool alive;
  static constexpr size_t kUnit = 64, kClasses = 24, kMost = 4096;
  static size_t class_of(size_t bytes) { return (bytes - 1) / kUnit; }

  void* take(size_t size_class) {
    Free* const p = free_[size_class];
    if (p == nullptr) return ::operator new((size_class + 1) * kUnit);
    free_[size_class] = p->next;
    --count_[size_class];
    return p;
  }
  bool give(void* block, size_t size_class) {
    if (count_[size_class] == kMost) return false;
    ++count_[size_class];
    free_[size_class] = new (block) Free{free_[size_class]};
    return true;
  }

 private:
  struct Free {
    Free* next;
  };
  std::array<Free*, kClasses> free_{};
  std::array<size_t, kClasses> count_{};
};
thread_local bool NodeBlocks::alive = false;
thread_local NodeBlocks node_blocks;

void* take_node(size_t bytes) {
#ifndef __SANITIZE_ADDRESS__
  if (const size_t c = NodeBlocks::class_of(bytes); c < NodeBlocks::kClasses) return node_blocks.take(c);
#endif
  return ::operator new(bytes);
}

void give_node(void* block, [[maybe_unused]] size_t bytes) {
#ifndef __SANITIZE_ADDRESS__
  if (const size_t c = NodeBlocks::class_of(bytes); c < NodeBlocks::kClasses && NodeBlocks::alive)
    if (node_blocks.give(block, c)) return;
#endif
  ::operator delete(block);
}

}  // namespace

void retain(Node* node) { node->references.fetch_add(1, std::memory_order_relaxed); }
void release(Node* node) {
  if (node->references.fetch_sub(1, std::memory_order_acq_rel) == 1) Node::destroy(node);
}

NoGrad::NoGrad(bool on) : previous_(std::exchange(no_grad, on)) {}
NoGrad::~NoGrad() { no_grad = previous_; }
bool NoGrad::active() { return no_grad; }

bool needs_grad(std::span<const std::reference_wrapper<const Tensor>> inputs) {
  if (no_grad) return false;
  for (const Tensor& t : inputs)
    if (t.requires_grad()) return true;
  return false;
}

Node* Node::make(size_t inputs, size_t saved, size_t outputs, size_t attribute_bytes) {
  const size_t bytes = sizeof(Node) + inputs * sizeof(Edge) + saved * sizeof(Saved) + outputs * sizeof(Tensor) +
                       (attribute_bytes + 7) / 8 * 8;
  TALLY_ASSERT(inputs < 65536 && saved < 65536 && outputs < 65536);
  Node* const node = new (take_node(bytes)) Node;
  node->bytes_ = static_cast<uint32_t>(bytes);
  node->inputs_ = static_cast<uint16_t>(inputs);
  node->room_ = static_cast<uint16_t>(saved);
  node->outputs_ = static_cast<uint16_t>(outputs);
  for (Edge& e : node->edges()) new (&e) Edge;
  for (Tensor& g : node->grads()) new (&g) Tensor;
  return node;
}

Ref<Node> Node::make_leaf() {
  Ref<Node> node(make(0, 0, 1, 0));
  node->leaf_ = true;
  return node;
}

void Node::destroy(Node* node) {
  const size_t bytes = node->bytes_;
  node->~Node();
  give_node(node, bytes);
}

Node::~Node() {
  for (Saved& s : saved()) s.~Saved();
  for (Tensor& g : grads()) g.~Tensor();
  std::vector<Ref<Node>> local;
  const bool outermost = doomed == nullptr;
  if (outermost) doomed = &local;
  for (Edge& e : edges()) {
    if (e.node) doomed->push_back(std::move(e.node));
    e.~Edge();
  }
  if (!outermost) return;
  while (!local.empty()) {
    Ref<Node> next = std::move(local.back());
    local.pop_back();
  }
  doomed = nullptr;
}

Outputs::Outputs(std::initializer_list<Tensor*> outputs, const char* name) : op(name), count_(outputs.size()) {
  TALLY_ASSERT(outputs.size() <= few_.size());
  std::copy(outputs.begin(), outputs.end(), few_.begin());
}

Recorder::Recorder(const Outputs& outputs, Inputs inputs, std::span<const Tensor> saved, size_t attribute_bytes)
    : node_(Node::make(inputs.size(), saved.size(), outputs.all().size(), attribute_bytes)), alone_(node_) {
  Node& n = *node_;
  n.op_ = outputs.op;
  n.scope_ = Ledger::current().scope();
  for (const Tensor& t : saved) {
    new (n.saved_begin() + n.saved_) Saved(t, n.scope_);
    ++n.saved_;
  }
  Node::Edge* e = n.edge_begin();
  for (const Tensor& t : inputs) {
    e->node = t.node();
    e->output = t.output_index();
    // One by one: a whole made from parts would wait for them to be stored before it could be read.
    if (t.defined()) e->meta.size = t.sizes(), e->meta.dtype = t.dtype(), e->meta.device = t.device();
    ++e;
  }
  const std::span<Tensor* const> all = outputs.all();
  if (all.empty()) return;
  if (e != n.edge_begin() && n.edge_begin()->node && all[0]->shares_storage(inputs[0].get())) {
    const Node& source = *n.edge_begin()->node;
    n.views_leaf_ = source.is_leaf() || source.views_leaf();
  }
  const int last = n.outputs_ - 1;
  for (int i = 0; i < last; ++i) all[static_cast<size_t>(i)]->set_node(alone_, i);
  all.back()->set_node(std::move(alone_), last);
}

void Recorder::set(std::unique_ptr<CustomNode> custom) { node_->custom_ = std::move(custom); }

Category Backward::category(int i) const {
  const Ref<Node>& node = source(i);
  return node && node->is_leaf() ? Category::kGradient : Category::kActivation;
}

DType gradient_dtype_of(DType dtype, bool leaf) { return leaf && is_half(dtype) ? DType::kF32 : dtype; }

DType Backward::gradient_dtype(int i) const {
  const Ref<Node>& node = source(i);
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
  if (accumulate) bump_version(there);
  return accumulate ? there : Tensor::empty(input(i).size, gradient_dtype(i), input(i).device, category(i));
}

}  // namespace tally
