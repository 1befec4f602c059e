// recompute(fn, inputs...): activation checkpointing (Chen et al. 2016, "Training deep nets with sublinear memory
// cost"). fn runs and is recorded as ever, but nothing that its ops save is kept, only its inputs and parameters; the
// first backward of these ops runs fn again for what it needs.
//
//   y = recompute([&](const Tensor& x) { return block(x); }, x);
//
// The ops, their order and the sums of gradients are those of the stored form, so the gradients are equal bit for bit.
// fn must do the same both times: masks come from counters (seed, stream), and default_generator() is put back to where
// it was for the second run. fn may itself recompute. The second run is in the ledger under the
// phase "recompute" and the scope of the first. fn is kept until then: what it holds by reference must live as long.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tally/core/tensor.h"

namespace tally {

using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// Throws Error when the second run saves other tensors than the first, or a tensor that was changed in place since.
std::vector<Tensor> recompute(TensorFunction fn, const std::vector<Tensor>& inputs);

template <class F, std::same_as<Tensor>... T>
requires std::invocable<F, const T&...>
auto recompute(F fn, const T&... inputs) {
  constexpr bool one = std::same_as<std::invoke_result_t<F, const T&...>, Tensor>;
  TensorFunction all = [fn = std::move(fn)](const std::vector<Tensor>& x) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      if constexpr (one) {
        return std::vector<Tensor>{fn(x[I]...)};
      } else {
        return std::vector<Tensor>(fn(x[I]...));
      }
    }
    (std::index_sequence_for<T...>());
  };
  std::vector<Tensor> outputs = recompute(std::move(all), std::vector<Tensor>{inputs...});
  if constexpr (one) {
    return std::move(outputs[0]);
  } else {
    return outputs;
  }
}

}  // namespace tally
