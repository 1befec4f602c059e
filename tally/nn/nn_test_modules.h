// Modules as the course's notes write them, for tests: a Linear of shape (in, out) and the Cruncher.
#pragma once

#include <cmath>

#include "tally/nn/module.h"
#include "tally/nn/modules.h"
#include "tally/ops/matmul.h"
#include "tally/ops/view.h"

namespace tally::test {

struct NotesLinear {
  Tensor weight;  // (in, out), unlike Linear's
  NotesLinear() = default;
  NotesLinear(Init& init, int64_t in, int64_t out)
      : weight(init.normal(Dims(in, out), 1 / std::sqrt(static_cast<double>(in)))) {}
  Tensor operator()(const Tensor& x) const { return matmul(x, weight); }
  void visit(Params& p) { p("weight", weight); }
};

// num_layers of (dim, dim), then (dim, 1).
struct Cruncher {
  std::vector<NotesLinear> layers;
  NotesLinear last;
  Cruncher(Init& init, int64_t dim, int64_t num_layers) {
    for (int64_t i = 0; i < num_layers; ++i) layers.emplace_back(init, dim, dim);
    last = NotesLinear(init, dim, 1);
  }
  Tensor operator()(Tensor x) const {  // (B, D) -> (B)
    for (const NotesLinear& layer : layers) x = layer(x);
    return squeeze(last(x), -1);
  }
  void visit(Params& p) { p.list("layers", layers), p.child("final", last); }
};

}  // namespace tally::test
