// Reverse-mode differentiation on a tape. An op calls record() right under its forward:
//
//   record(y, {x}, {x}, [](Backward& b, float slope) { ... b.add(0, dx); }, slope);
//
// The lambda captures nothing and the extra arguments are numbers, enums or Dims, so a backward cannot hide a tensor:
// what it keeps stands in `saved`, where it can be counted, offloaded or recomputed. (Tensor, View, pointer, reference
// as an extra argument does not compile.) What needs more state than numbers is a CustomNode (custom_node.h).
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tally/core/saved.h"
#include "tally/core/tensor.h"

namespace tally {

class Backward;
class BackwardRun;
class CustomNode;
struct Hooks;

// Adds g to into, in place when it may; comes from ops. g may be bf16 where into is f32; an undefined `into` becomes g
// in f32, accounted as a gradient.
using AddGradient = void (*)(Tensor& into, Tensor&& g);

// What a backward may know of an input without keeping it alive.
struct InputMeta {
  Dims size;
  DType dtype = DType::kF32;
  Device device;
};

// One recorded op, or a leaf: a tensor that was told to require a gradient. Its arrays lie behind it in one block:
// inputs, saved tensors, gradients of the outputs, the backward's numbers.
class Node {
 public:
  std::atomic<int32_t> references{0};
  static Ref<Node> make_leaf();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  bool is_leaf() const { return leaf_; }
  // Of a view of a leaf, or a view of that: PyTorch refuses to change it in place.
  bool views_leaf() const { return views_leaf_; }
  Tensor& leaf_grad() { return grads()[0]; }
  // grad() of the tensor that is `output` of this node: a leaf's, or what retain_grad() kept.
  Tensor kept_grad(int output);
  void retain_grad(int output);
  bool retains_grad(int output) const;
  const std::shared_ptr<Hooks>& hooks();  // made when there are none
  const char* op() const { return op_; }
  // The nodes that gradients flow to from this one; null for an input that needs none.
  size_t input_count() const { return inputs_; }
  const Ref<Node>& input(size_t i) { return edge_begin()[i].node; }

 private:
  friend class Backward;
  friend class BackwardRun;
  friend class Recorder;
  friend void release(Node* node);

  struct Edge {
    Ref<Node> node;  // null: this input needs no gradient
    int output = 0;
    InputMeta meta;
  };

  Node() = default;
  ~Node();
  static Node* make(size_t inputs, size_t saved, size_t outputs, size_t attribute_bytes);
  static void destroy(Node* node);

  Edge* edge_begin() { return reinterpret_cast<Edge*>(this + 1); }
  Saved* saved_begin() { return reinterpret_cast<Saved*>(edge_begin() + inputs_); }
  Tensor* grad_begin() { return reinterpret_cast<Tensor*>(saved_begin() + room_); }
  std::byte* attributes() { return reinterpret_cast<std::byte*>(grad_begin() + outputs_); }
  std::span<Edge> edges() { return {edge_begin(), inputs_}; }
  std::span<Saved> saved() { return {saved_begin(), saved_}; }
  std::span<Tensor> grads() { return {grad_begin(), outputs_}; }

  void (*call_)(const std::byte* attributes, Backward& b) = nullptr;
  std::unique_ptr<CustomNode> custom_;
  std::shared_ptr<Hooks> hooks_;
  const char* op_ = "";
  // A run of backward knows by its number which nodes it has met, and which of them it needs.
  uint64_t met_ = 0, needed_ = 0;
  uint32_t next_ = 0;  // edge to follow next
  uint32_t bytes_ = 0;
  uint16_t inputs_ = 0, saved_ = 0, room_ = 0, outputs_ = 0;  // room_: of saved
  int scope_ = 0;
  bool leaf_ = false, spent_ = false, views_leaf_ = false;
};

// Handed to a backward function.
class Backward {
 public:
  // The gradient of output i; undefined when nothing flowed into it (several outputs only).
  const Tensor& grad(int output = 0) const { return node_.grad_begin()[output]; }
  Tensor take_grad(int output = 0) { return std::move(node_.grad_begin()[output]); }
  int outputs() const { return node_.outputs_; }
  // What was saved, brought back; an Error when it was changed in place since.
  const Tensor& saved(int i) const;
  Tensor take_saved(int i);  // no longer kept by the node, unless the graph is retained
  int saved_count() const { return node_.saved_; }
  const InputMeta& input(int i) const { return node_.edge_begin()[i].meta; }
  int inputs() const { return node_.inputs_; }
  bool needs(int i) const;
  const char* op() const { return node_.op_; }

  // Where input i's gradient is accounted: kGradient for a leaf (a parameter), else kActivation.
  Category category(int i) const;
  // What input i's gradient is kept in: its own dtype, but f32 for a bf16 leaf, whose gradient is a sum over many uses
  // and micro-batches (Micikevicius et al. 2018, "Mixed precision training": the small ones would be lost in 8 bits).
  DType gradient_dtype(int i) const;
  // Uninitialised gradient for input i in the input's own dtype, for kernels that write no other; add() widens it.
  Tensor empty(int i) const;
  // The tensor of gradient_dtype(i) that input i's gradient may be written to: the one already there with `accumulate`
  // true when it can be added to in place, else a fresh one. The caller hands it back with add(i, target, accumulate).
  Tensor target(int i, bool& accumulate);
  void add(int i, Tensor gradient, bool accumulated = false);

 private:
  friend class BackwardRun;
  Backward(Node& node, const BackwardRun& run) : node_(node), run_(run) {}
  const Ref<Node>& source(int i) const { return node_.edge_begin()[i].node; }
  Tensor& slot(int i) const { return source(i)->grad_begin()[node_.edge_begin()[i].output]; }
  Node& node_;
  const BackwardRun& run_;
};

template <class T>
concept Attribute = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, Dims>;

// Gradients are recorded unless a NoGrad object is alive on this thread; an EnableGrad inside it turns them on again.
class NoGrad {
 public:
  explicit NoGrad(bool on = true);
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
  ~NoGrad();
  static bool active();

 private:
  bool previous_;
};
class EnableGrad : NoGrad {
 public:
  EnableGrad() : NoGrad(false) {}
};

using TensorRefs = std::initializer_list<std::reference_wrapper<const Tensor>>;

// True when an op on these inputs must record a backward.
bool needs_grad(std::span<const std::reference_wrapper<const Tensor>> inputs);
inline bool needs_grad(TensorRefs inputs) { return needs_grad(std::span(inputs.begin(), inputs.size())); }

// The outputs of an op, and its name for errors: that of the function that records.
class Outputs {
 public:
  Outputs(Tensor& output, const char* name = __builtin_FUNCTION()) : op(name), few_{&output}, count_(1) {}
  Outputs(std::initializer_list<Tensor*> outputs, const char* name = __builtin_FUNCTION());  // at most 8
  Outputs(const std::vector<Tensor*>& outputs, const char* name = __builtin_FUNCTION()) : op(name), many_(outputs) {}
  std::span<Tensor* const> all() const { return count_ > 0 ? std::span(few_.data(), count_) : many_; }
  const char* op;

 private:
  std::array<Tensor*, 8> few_;
  size_t count_ = 0;
  std::span<Tensor* const> many_;
};

// The untyped half of record().
class Recorder {
 public:
  using Inputs = std::span<const std::reference_wrapper<const Tensor>>;
  Recorder(const Outputs& outputs, Inputs inputs, std::span<const Tensor> saved, size_t attribute_bytes = 0);
  template <class F, class... A>
  void set(F, A... arguments) {
    using Tuple = std::tuple<A...>;
    static_assert(alignof(Tuple) <= 8 && std::is_trivially_destructible_v<Tuple>);
    new (node_->attributes()) Tuple(arguments...);
    node_->call_ = [](const std::byte* p, Backward& b) {
      std::apply([&](const auto&... x) { F{}(b, x...); }, *std::launder(reinterpret_cast<const Tuple*>(p)));
    };
  }
  void set(std::unique_ptr<CustomNode> custom);

 private:
  Node* node_;       // which the outputs own
  Ref<Node> alone_;  // or, where there are none, this
};

// Several outputs, `record({&a, &b}, ...)`: grad(i) belongs to outputs[i]. The second form takes as many inputs as
// there are: a vector of std::cref(x), and one of what is saved.
template <class F, Attribute... A>
requires std::is_empty_v<F> && std::invocable<F, Backward&, A...>
void record(Outputs outputs, TensorRefs inputs, std::initializer_list<Tensor> saved, F f, A... arguments) {
  if (!needs_grad(inputs)) return;
  Recorder(outputs, {inputs.begin(), inputs.size()}, {saved.begin(), saved.size()}, sizeof(std::tuple<A...>))
      .set(f, arguments...);
}

template <class F, Attribute... A>
requires std::is_empty_v<F> && std::invocable<F, Backward&, A...>
void record(Outputs outputs, Recorder::Inputs inputs, std::span<const Tensor> saved, F f, A... arguments) {
  if (!needs_grad(inputs)) return;
  Recorder(outputs, inputs, saved, sizeof(std::tuple<A...>)).set(f, arguments...);
}

// The dtype of the gradient of a tensor of `dtype`: see Backward::gradient_dtype().
DType gradient_dtype_of(DType dtype, bool leaf);

// Runs the tape from `loss` with d(loss) = gradient. Nodes release what they saved as soon as they ran, so a graph can
// be run once, unless it is retained. Gradients of leaves add to grad().
void run_backward(const Tensor& loss, Tensor gradient, AddGradient add, bool retain_graph = false);
// The gradients of `inputs` (undefined where nothing flowed) with d(outputs[i]) = gradients[i]; grad() of no tensor is
// changed, and what leads to no input is not run.
std::vector<Tensor> run_grad(const std::vector<Tensor>& outputs, std::vector<Tensor> gradients,
                             const std::vector<Tensor>& inputs, AddGradient add, bool retain_graph);

}  // namespace tally
