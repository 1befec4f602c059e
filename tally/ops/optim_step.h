// Steps of optimizers on one tensor, in place and never recorded; the global norm is built from sum_squares().
#pragma once

#include <vector>

#include "tally/core/tensor.h"
#include "tally/ops/optim_step_kernels.h"

namespace tally {

// AdamW with decoupled weight decay (Loshchilov and Hutter 2019): decay first, then the step. All of one shape; m and v
// are f32 (f64 for an f64 param), param and grad f32 or bf16 (both f64 or neither).
void adamw_step(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v, const AdamwScalars& scalars);

// Many tensors in few launches, each with a weight decay of its own (the scalars' is not looked at). A bf16 param with
// a master (f32) becomes the rounded copy of the master, which is what steps.
struct AdamwTensors {
  Tensor param, grad, m, v, master;  // master may be undefined
  double weight_decay = 0;
};
void adamw_step(const std::vector<AdamwTensors>& all, const AdamwScalars& scalars);

// Sum of squares of all elements in f64: not finite exactly when an element is not finite (f32 and bf16). 0 on meta.
double sum_squares(const Tensor& x);
// Of each tensor, all of one device, which is waited for once.
std::vector<double> sums_of_squares(const std::vector<Tensor>& all);

}  // namespace tally
