// The table of ops: one line an op, which becomes a function of the module and, for `both`, a method of Tensor. Names,
// order of arguments and meaning are PyTorch's; what is ours says so.
#include "python/bind.h"
#include "tally/ops/attention.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/dropout.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/embedding.h"
#include "tally/ops/gather.h"
#include "tally/ops/matmul.h"
#include "tally/ops/norm.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"

namespace tally::py {
namespace {

void unary_ops(Ops& o) {
  o.both("relu", relu, "max(x, 0).");
  o.both("sigmoid", sigmoid, "1 / (1 + exp(-x)).");
  o.both("tanh", tally::tanh, "The hyperbolic tangent.");
  o.both("exp", tally::exp, "e to the x.");
  o.both("log", tally::log, "The natural logarithm.");
  o.both("sqrt", tally::sqrt, "The square root.");
  o.both("rsqrt", rsqrt, "1 / sqrt(x).");
  o.both("neg", neg, "-x.");
  o.both("square", square, "x * x.");
  o.both("silu", silu, "x sigmoid(x).");
}

void products(Ops& o) {
  o.both("matmul", matmul, "(..., M, K) @ (..., K, N) -> (..., M, N); leading axes broadcast; vectors as in PyTorch.",
         "other"_a);
  o.both("bmm", bmm, "(B, M, K) @ (B, K, N) -> (B, M, N).", "mat2"_a);
}

void reductions(Ops& o) {
  o.both("sum", tally::sum, "The sum over the axes dim, over all without it.", "dim"_a = Dims(), "keepdim"_a = false);
  o.both("mean", mean, "The mean over the axes dim, over all without it.", "dim"_a = Dims(), "keepdim"_a = false);
  o.both("softmax", softmax, "exp(x) / sum(exp(x)) over dim.", "dim"_a);
}

}  // namespace

void bind_ops(Ops& o) {
  unary_ops(o);
  products(o);
  reductions(o);
}

}  // namespace tally::py
