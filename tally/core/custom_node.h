// The other kind of node: a backward with more state than numbers (user-written functions here and in Python). Its
// tensors stand in `saved` all the same, where they are counted, offloaded or computed again; members hold no tensors.
//
//   struct Cube {
//     float scale = 1;                                                              // whatever is no tensor
//     std::vector<Tensor> forward(FunctionContext& c, const std::vector<Tensor>& x) {  // not recorded
//       c.save({x[0]});
//       return {...};
//     }
//     std::vector<Tensor> backward(FunctionContext& c, const std::vector<Tensor>& gradients) {
//       return {...};  // one an input, undefined for none
//     }
//   };
//   Tensor y = apply(Cube{2}, {x})[0];
#pragma once

#include <concepts>
#include <memory>
#include <utility>
#include <vector>

#include "tally/core/tape.h"

namespace tally {

class CustomNode {
 public:
  virtual ~CustomNode() = default;
  virtual void backward(Backward& b) = 0;
};

// What forward and backward of a user's function know of each other.
class FunctionContext {
 public:
  // In forward: keeps tensors (inputs, outputs or others) for the backward. The last call counts.
  void save(std::vector<Tensor> tensors) { saved_ = std::move(tensors); }
  // In backward: what was saved, in that order. Throws Error when one was changed in place since.
  const std::vector<Tensor>& saved() const { return saved_; }
  // True when input i requires a gradient: what backward returns for another is not used.
  bool needs(size_t i) const { return needs_[i]; }

 private:
  friend class FunctionNode;
  friend struct FunctionCall;
  std::vector<Tensor> saved_;
  std::vector<bool> needs_;
};

template <class F>
concept Function = std::move_constructible<F> && requires(F f, FunctionContext& c, const std::vector<Tensor>& x) {
  { f.forward(c, x) } -> std::same_as<std::vector<Tensor>>;
  { f.backward(c, x) } -> std::same_as<std::vector<Tensor>>;
};

// A node whose backward is vector in, vector out; checks what comes out.
class FunctionNode : public CustomNode {
 public:
  void backward(Backward& b) final;

 protected:
  virtual std::vector<Tensor> run(FunctionContext& c, const std::vector<Tensor>& gradients) = 0;
};

// Runs forward() without recording, then records the node. Outputs of float dtypes require a gradient when an input
// does. An undefined gradient of an output means that nothing flowed into it. `name` stands in errors.
struct FunctionCall {
  FunctionCall(const std::vector<Tensor>& inputs);
  void record(const char* name, std::vector<Tensor>& outputs, std::unique_ptr<CustomNode> node);
  FunctionContext context;
  const std::vector<Tensor>& inputs;
  bool needed = false;
};

template <Function F>
std::vector<Tensor> apply(F f, const std::vector<Tensor>& inputs, const char* name = "a custom function") {
  struct Node final : FunctionNode {
    explicit Node(F g) : function(std::move(g)) {}
    std::vector<Tensor> run(FunctionContext& c, const std::vector<Tensor>& gradients) override {
      return function.backward(c, gradients);
    }
    F function;
  };
  FunctionCall call(inputs);
  std::vector<Tensor> outputs;
  {
    NoGrad quiet;
    outputs = f.forward(call.context, inputs);
  }
  if (call.needed) call.record(name, outputs, std::make_unique<Node>(std::move(f)));
  return outputs;
}

}  // namespace tally
