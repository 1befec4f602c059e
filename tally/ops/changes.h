// In-place changes and the tape: what other tensors of the memory learn of them (core/changes.h), as PyTorch's
// CopySlices. A tensor that shows memory which was changed through another becomes a function of two: its old self,
// without the elements that were changed, and the changed one.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// Refuses, while gradients are recorded, a leaf that requires one and a view of it.
void require_recordable(const char* op, const Tensor& x);
// x, which requires no gradient, is about to take one from an operand. Refused where x was made under NoGrad of a
// tensor that requires one, which would miss the change.
void require_recorded_view(const char* op, const Tensor& x);
// x's values and node are those after a change in place.
void publish(Tensor& x);

}  // namespace tally
