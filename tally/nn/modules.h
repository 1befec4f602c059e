// The small modules a decoder is made of: each holds its parameters, lists them in visit() and runs in operator().
#pragma once

#include "tally/base/generator.h"
#include "tally/nn/init.h"
#include "tally/nn/param.h"
#include "tally/ops/norm.h"

namespace tally {

// y = x W^T + b, W (out, in)
struct Linear {
  Tensor weight, bias;
  Tensor packed;  // takes the weight's place after pack()
  int64_t out = 0;
  Linear() = default;
  Linear(Init& init, int64_t in, int64_t out, bool with_bias, double std);
  Linear(Init& init, int64_t in, int64_t out, bool with_bias = true);  // std 1 / sqrt(in)
  Tensor operator()(const Tensor& x) const;
  void pack();  // for inference only: the weight is gone from visit()
  void visit(Params& p) { p("weight", weight), p("bias", bias); }
};

// What several linears make of one input, in few launches where the device allows it.
std::vector<Tensor> project(const Tensor& x, const std::vector<const Linear*>& all);

// Rows of a (vocabulary, d) table by id.
struct Embedding {
  Tensor weight;
  Tensor packed;  // takes the table's place after pack(), where it is also a tied head's weight
  int64_t count = 0;
  Embedding() = default;
  Embedding(Init& init, int64_t count, int64_t d, double std);
  Tensor operator()(const Tensor& ids) const;
  Tensor head(const Tensor& x) const;  // x times the table: logits of a tied head
  void pack();
  void visit(Params& p) { p("weight", weight); }
};

enum class NormKind { kLayer, kRms };

// LayerNorm (weight and, unless turned off, bias) or RMSNorm (weight) over the last axis.
struct Norm {
  NormKind kind = NormKind::kRms;
  double eps = 1e-5;
  Tensor weight, bias;
  Norm() = default;
  Norm(Init& init, NormKind kind, int64_t d, bool with_bias, double eps);
  Tensor operator()(const Tensor& x) const;
  ResidualNorm operator()(const Tensor& x, const Tensor& residual) const;  // of x + residual, which it gives too
  void visit(Params& p) { p("weight", weight), p("bias", bias); }
};

struct LayerNorm : Norm {
  LayerNorm() : Norm() { kind = NormKind::kLayer; }
  LayerNorm(Init& init, int64_t d, double eps = 1e-5, bool with_bias = true)
      : Norm(init, NormKind::kLayer, d, with_bias, eps) {}
};
struct RMSNorm : Norm {
  RMSNorm() = default;
  RMSNorm(Init& init, int64_t d, double eps = 1e-5) : Norm(init, NormKind::kRms, d, false, eps) {}
};

// Drops elements with probability p and divides the others by 1 - p while `training`; the identity after eval(). Every
// call is a draw of the generator (manual_seed()), so its mask is another, and the same in the second run of a
// recompute().
struct Dropout {
  float p;
  bool training = true;
  Generator* generator;
  // ValueError unless probability is in [0, 1].
  explicit Dropout(float probability = 0.5f, Generator& g = default_generator());
  Tensor operator()(const Tensor& x) const;
  void visit(Params& params) { params.training(training); }
};

}  // namespace tally
