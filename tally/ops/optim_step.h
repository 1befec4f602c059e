// Steps of optimizers on one tensor, in place and never recorded; the global norm is built from sum_squares().
#pragma once

#include <array>
#include <vector>

#include "tally/core/tensor.h"
#include "tally/ops/optim_step_kernels.h"

namespace tally {

// The numbers of one AdamW step. correction1 = 1 - beta1^t, correction2 = 1 - beta2^t; grad_scale multiplies the
// gradient first (clipping).
struct AdamwScalars {
  double lr, beta1, beta2, eps, weight_decay, correction1, correction2, grad_scale;
  // What of it changes from step to step, as AdamwArgs::rates has it.
  std::array<double, 3> rates() const;
};

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
// The same with the numbers that change from step to step on the device: rates (3) f64 as AdamwScalars::rates() and
// grad_scale, one f64; only the betas and eps are read of `scalars`. Nothing changes when grad_scale is not finite.
void adamw_step(const std::vector<AdamwTensors>& all, const AdamwScalars& scalars, const Tensor& rates,
                const Tensor& grad_scale);

// Sum of squares of all elements in f64: not finite exactly when an element is not finite (f32 and bf16). 0 on meta.
double sum_squares(const Tensor& x);
// Sums of squares of pieces of all tensors, which are of one device: (pieces) f64, Category::kWorkspace.
Tensor squares_of(const std::vector<Tensor>& all);
// totals (3) f64 = mean of losses (n), f32 or f64; root of the sum of `squares`; factor that brings that norm to at
// most max_norm, as PyTorch's clip_grad_norm_ (1 when max_norm is 0), NaN when loss or norm are not finite. Without
// waiting.
void step_totals(const Tensor& squares, const Tensor& losses, double max_norm, const Tensor& totals);

}  // namespace tally
