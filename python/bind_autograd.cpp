// backward() and whether gradients are recorded.
#include <memory>

#include "python/bind.h"
#include "tally/core/tape.h"
#include "tally/ops/backward.h"

namespace tally::py {
namespace {

// Turns recording on or off on this thread for good and says how it was: Python's blocks turn it back.
bool set_grad_mode(bool on) {
  const bool was = !NoGrad::active();
  alignas(NoGrad) std::byte place[sizeof(NoGrad)];
  if (on != was) new (place) NoGrad();  // without its destructor, which would turn it back
  return was;
}

}  // namespace

void bind_autograd(nb::module_& m, TensorClass& c) {
  m.def("set_grad_mode", set_grad_mode, "on"_a, "Records ops on this thread or not; returns what it was.");
  m.def(
      "is_grad_enabled", [] { return !NoGrad::active(); }, "Whether ops are recorded on this thread.");
  c.def(
       "backward",
       [](const Tensor& loss, const Tensor* gradient) { gradient ? backward(loss, *gradient) : backward(loss); },
       Release(), "gradient"_a = nb::none(),
       "Runs the tape: adds d(this)/d(leaf) to .grad of every leaf that requires it. A tensor of more than one element "
       "needs a gradient of its shape. RuntimeError when nothing requires a gradient, or the tape ran already.")
      .def("detach", &Tensor::detach, "The same storage without history.");
}

}  // namespace tally::py
