// backward() and grad(): run the tape. Gradients of leaf tensors add to what is already there; those of bf16 leaves are
// kept and summed in f32. No second-order gradients: create_graph is refused.
#pragma once

#include <vector>

#include "tally/core/tensor.h"

namespace tally {

// d(loss) = gradient, of loss's shape, dtype and device; it may be left out when loss has one element. A graph can be
// run once, unless retain_graph: RuntimeError "Trying to backward through the graph a second time".
void backward(const Tensor& loss, const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false);

// The gradients of `inputs`, leaves or not, summed over outputs with d(outputs[i]) = grad_outputs[i] (undefined, or a
// shorter list: 1 for outputs of one element). grad() of no tensor is touched. An input that the outputs do not depend
// on is an error, or an undefined gradient with allow_unused.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& grad_outputs = {}, bool retain_graph = false,
                         bool allow_unused = false, bool create_graph = false);

}  // namespace tally
