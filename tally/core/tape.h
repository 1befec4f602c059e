// Reverse-mode differentiation on a tape. An op calls record() right under its forward:
//
//   record(y, {x}, {x}, [](Backward& b, float slope) { ... b.add(0, dx); }, slope);
//
// The lambda captures nothing and the extra arguments are numbers, enums or Dims, so a backward cannot hide a tensor:
// what it keeps stands in `saved`, where it can be counted, offloaded or recomputed. (Tensor, View, pointer, reference
// as an extra argument does not compile.)
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tally/core/tensor.h"

namespace tally {

class Backward;

// What a backward may know of an input without keeping it alive.
struct InputMeta {
  Dims size;
  DType dtype = DType::kF32;
  Device device;
};

class Node {
 public:
  std::atomic<int32_t> references{0};
  static Ref<Node> make_leaf();
  ~Node();

  bool is_leaf() const { return call_ == nullptr; }
  Tensor& leaf_grad() { return grads_[0]; }

 private:
  friend class Backward;
  friend class Recorder;
  friend void run_backward(const Tensor& loss, Tensor gradient, void (*add)(Tensor&, Tensor));

  struct Edge {
    Ref<Node> node;  // null: this input needs no gradient
    int output = 0;
  };
  static constexpr size_t kAttributeBytes = 192;

  // Nodes that `root` depends on, inputs before their users.
  static std::vector<Ref<Node>> topological_order(const Ref<Node>& root);

  void (*call_)(const std::byte* attributes, Backward& b) = nullptr;
  alignas(8) std::byte attributes_[kAttributeBytes];
  std::vector<Tensor> saved_;
  std::vector<Edge> inputs_;
  std::vector<InputMeta> metas_;
  std::vector<Tensor> grads_;  // one an output
  int scope_ = 0;
  bool spent_ = false;
};

// Handed to a backward function.
class Backward {
 public:
  // The gradient of output i; undefined when nothing flowed into it (several outputs only).
  const Tensor& grad(int output = 0) const { return node_.grads_[output]; }
  Tensor take_grad(int output = 0) { return std::move(node_.grads_[output]); }
  const Tensor& saved(int i) const { return node_.saved_[i]; }
  Tensor take_saved(int i) { return std::move(node_.saved_[i]); }
  const InputMeta& input(int i) const { return node_.metas_[i]; }
  bool needs(int i) const { return static_cast<bool>(node_.inputs_[i].node); }

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
  friend void run_backward(const Tensor& loss, Tensor gradient, void (*add)(Tensor&, Tensor));
  Backward(Node& node, void (*add)(Tensor&, Tensor)) : node_(node), add_(add) {}
  Tensor& slot(int i) const { return node_.inputs_[i].node->grads_[node_.inputs_[i].output]; }
  Node& node_;
  void (*add_)(Tensor& into, Tensor gradient);
};

template <class T>
concept Attribute = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, Dims>;

// Gradients are recorded unless a NoGrad object is alive on this thread.
class NoGrad {
 public:
  NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
  ~NoGrad();
  static bool active();

 private:
  bool previous_;
};

using TensorRefs = std::initializer_list<std::reference_wrapper<const Tensor>>;

// True when an op on these inputs must record a backward.
bool needs_grad(TensorRefs inputs);

// The untyped half of record().
class Recorder {
 public:
  Recorder(std::initializer_list<Tensor*> outputs, TensorRefs inputs, std::initializer_list<Tensor> saved);
  explicit operator bool() const { return static_cast<bool>(node_); }
  template <class F, class... A>
  void set(F, A... arguments) {
    using Tuple = std::tuple<A...>;
    static_assert(sizeof(Tuple) <= Node::kAttributeBytes && alignof(Tuple) <= 8);
    new (node_->attributes_) Tuple(arguments...);
    node_->call_ = [](const std::byte* p, Backward& b) {
      std::apply([&](const auto&... x) { F{}(b, x...); }, *std::launder(reinterpret_cast<const Tuple*>(p)));
    };
  }

 private:
  Ref<Node> node_;
};

// Several outputs: grad(i) belongs to outputs[i].
template <class F, Attribute... A>
requires std::is_empty_v<F> && std::invocable<F, Backward&, A...>
void record(std::initializer_list<Tensor*> outputs, TensorRefs inputs, std::initializer_list<Tensor> saved, F f,
            A... arguments) {
  if (!needs_grad(inputs)) return;
  Recorder(outputs, inputs, saved).set(f, arguments...);
}

template <class F, Attribute... A>
requires std::is_empty_v<F> && std::invocable<F, Backward&, A...>
void record(Tensor& output, TensorRefs inputs, std::initializer_list<Tensor> saved, F f, A... arguments) {
  record({&output}, inputs, saved, f, arguments...);
}

// The dtype of the gradient of a tensor of `dtype`: see Backward::gradient_dtype().
DType gradient_dtype_of(DType dtype, bool leaf);

// Runs the tape from `loss` with d(loss) = gradient. `add(into, g)` comes from ops: it adds g to into, in place when it
// may; g may be bf16 where into is f32, and an undefined `into` becomes g in f32, accounted as a gradient. Nodes
// release what they saved as soon as they ran, so a graph can be run once.
void run_backward(const Tensor& loss, Tensor gradient, void (*add)(Tensor& into, Tensor g));

}  // namespace tally
