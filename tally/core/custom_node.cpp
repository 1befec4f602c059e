#include "tally/core/custom_node.h"

#include "tally/base/error.h"

namespace tally {

FunctionCall::FunctionCall(const std::vector<Tensor>& all) : inputs(all) {
  for (const Tensor& x : inputs) {
    context.needs_.push_back(x.requires_grad());
    needed = needed || (x.requires_grad() && !NoGrad::active());
  }
}

void FunctionCall::record(const char* name, std::vector<Tensor>& outputs, std::unique_ptr<CustomNode> node) {
  const std::vector<std::reference_wrapper<const Tensor>> from(inputs.begin(), inputs.end());
  std::vector<Tensor*> recorded;
  for (Tensor& y : outputs) {
    y = y.detach();  // an input that comes out unchanged is another tensor on the tape
    recorded.push_back(&y);
  }
  Recorder({recorded, name}, from, context.saved_).set(std::move(node));
  for (Tensor& y : outputs)
    if (!y.defined() || !is_floating(y.dtype())) y = y.detach();
}

void FunctionNode::backward(Backward& b) {
  FunctionContext context;
  for (int i = 0; i < b.saved_count(); ++i) context.saved_.push_back(b.take_saved(i));
  for (int i = 0; i < b.inputs(); ++i) context.needs_.push_back(b.needs(i));
  std::vector<Tensor> gradients;
  for (int i = 0; i < b.outputs(); ++i) gradients.push_back(b.take_grad(i));
  std::vector<Tensor> made = run(context, gradients);
  if (static_cast<int>(made.size()) != b.inputs())
    fail("the backward of {} returned {} gradients for {} inputs: give one each, undefined for none", b.op(),
         made.size(), b.inputs());
  for (int i = 0; i < b.inputs(); ++i) {
    Tensor& g = made[static_cast<size_t>(i)];
    if (!b.needs(i) || !g.defined()) continue;
    const InputMeta& x = b.input(i);
    if (g.sizes() != x.size || g.device() != x.device || (g.dtype() != x.dtype && g.dtype() != b.gradient_dtype(i)))
      fail("the backward of {} returned a {} gradient of shape {} on {} for input {}, a {} tensor of shape {} on {}",
           b.op(), name_of(g.dtype()), str(g.sizes()), name_of(g.device()), i, name_of(x.dtype), str(x.size),
           name_of(x.device));
    b.add(i, g.detach());
  }
}

}  // namespace tally
