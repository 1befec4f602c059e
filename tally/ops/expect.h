// Shapes stated and checked, in the notation of jaxtyping:
//
//   Shapes s;                        // what each name stands for
//   s.expect(x, "batch seq d");      // binds batch, seq and d to x's sizes
//   s.expect(w, "d k", "w");         // d must agree, k is bound
//   s["k"];
//
// A pattern has a name, a number (that size and no other), _ (any size) or once ... (any number of axes) for each axis.
// Throws a value Error naming tensor, pattern, what was wanted and what came; nothing is bound then.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tally/core/tensor.h"

namespace tally {

class Shapes {
 public:
  Shapes& expect(const Tensor& x, std::string_view pattern, std::string_view name = "tensor");
  Shapes& expect(const Dims& shape, std::string_view pattern, std::string_view name = "tensor");
  // The size bound to a name. Throws Error for one that is not bound.
  int64_t operator[](std::string_view axis) const;
  bool has(std::string_view axis) const { return find(axis) != nullptr; }
  const std::vector<std::pair<std::string, int64_t>>& all() const { return bound_; }  // in order of first use

 private:
  const int64_t* find(std::string_view axis) const;
  std::vector<std::pair<std::string, int64_t>> bound_;
};

// One tensor alone: what its names stand for.
Shapes expect(const Tensor& x, std::string_view pattern, std::string_view name = "tensor");

}  // namespace tally
