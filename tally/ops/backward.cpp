#include "tally/ops/backward.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"

namespace tally {

namespace {

// In place when nobody else holds the storage (an input that is a view of another gradient must not change).
void accumulate(Tensor& into, Tensor&& g) {
  if (!into.defined()) {  // the first gradient of a bf16 parameter, from a kernel that writes bf16
    into = Tensor::empty(g.sizes(), DType::kF32, g.device(), Category::kGradient);
    return copy_(into, g);
  }
  const bool plain = into.sizes() == g.sizes() && into.dtype() == g.dtype();
  if (into.unique_storage() && into.is_contiguous()) {
    if (!plain) return add_(into, g);
    launch(&Kernels::binary, BinaryArgs{into.raw(), g.raw(), into.raw(), BinaryOp::kAdd});
    return wrote(into);
  }
  if (g.unique_storage() && g.is_contiguous() && g.category() == into.category() && g.dtype() == into.dtype()) {
    add_(g, into);
    into = std::move(g);
    return;
  }
  Tensor sum = Tensor::empty(into.sizes(), into.dtype(), into.device(), into.category());
  launch(&Kernels::binary, BinaryArgs{into.raw(), g.raw(), sum.raw(), BinaryOp::kAdd});
  into = std::move(sum);
}

// d(y) as given, or 1.
Tensor seed_of(const char* op, const Tensor& y, const Tensor& gradient) {
  if (!y.defined()) fail("{}: takes a tensor, not an undefined one", op);
  if (gradient.defined()) return gradient.detach();
  if (y.numel() != 1)
    fail("{}: grad can be implicitly created only for scalar outputs: a loss of shape {} needs a gradient of its shape",
         op, str(y.sizes()));
  Tensor one = Tensor::empty(y.sizes(), y.dtype(), y.device());
  if (y.requires_grad()) fill_(one, 1.0);
  return one;
}

void refuse_second_order(const char* op, bool create_graph) {
  if (create_graph) fail("{}: create_graph: there are no gradients of gradients here; leave it out", op);
}

}  // namespace

void backward(const Tensor& loss, const Tensor& gradient, bool retain_graph, bool create_graph) {
  refuse_second_order("backward", create_graph);
  run_backward(loss, seed_of("backward", loss, gradient), accumulate, retain_graph);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& grad_outputs, bool retain_graph, bool allow_unused,
                         bool create_graph) {
  refuse_second_order("grad", create_graph);
  if (grad_outputs.size() > outputs.size())
    fail("grad: {} gradients for {} outputs", grad_outputs.size(), outputs.size());
  std::vector<Tensor> seeds;
  for (size_t i = 0; i < outputs.size(); ++i)
    seeds.push_back(seed_of("grad", outputs[i], i < grad_outputs.size() ? grad_outputs[i] : Tensor{}));
  std::vector<Tensor> all = run_grad(outputs, std::move(seeds), inputs, accumulate, retain_graph);
  if (allow_unused) return all;
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].defined())
      fail(
          "grad: One of the differentiated Tensors appears to not have been used in the graph: input {} of shape {}; "
          "set "
          "allow_unused=true when that is meant",
          i, str(inputs[i].sizes()));
  return all;
}

}  // namespace tally
