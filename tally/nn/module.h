// What can be done with any module, that is any struct with visit(Params&) (param.h):
//
//   struct Cruncher {
//     std::vector<Linear> layers;
//     Linear last;
//     Tensor operator()(Tensor x) const;
//     void visit(Params& p) { p.list("layers", layers), p.child("final", last); }
//   };
//   StateDict saved = state_dict(model);  load_state_dict(model, saved);  zero_grad(model);  eval(model);
//
// Names and meaning as in PyTorch.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tally/nn/param.h"

namespace tally {

// A tensor that a module learns: a leaf in Category::kParameter that requires a gradient. Takes `values` themselves
// when they are accounted as a parameter, else a copy.
class Parameter : public Tensor {
 public:
  Parameter() = default;
  explicit Parameter(const Tensor& values, bool requires_grad = true);
};

// Names and tensors, in the module's order. The tensors share the module's storage.
using StateDict = std::vector<std::pair<std::string, Tensor>>;
StateDict state_dict(const std::vector<Param>& params);

struct LoadedKeys {
  std::vector<std::string> missing, unexpected;
};
// Copies values into the parameters, converting between floats and between devices. strict: all names of both sides
// must be there. Every difference is listed in one Error ("Missing key(s) in state_dict: ..."), also shapes and a
// float for an integer, and then nothing has been changed. Returns the names that only one side has.
LoadedKeys load_state_dict(const std::vector<Param>& params, const StateDict& state, bool strict = true);

// Clears gradients; not set_to_none: fills those that are there with zeros.
void zero_grad(const std::vector<Param>& params, bool set_to_none = true);

// Moves or converts all parameters and their gradients; what is tied stays tied. Integer tensors keep their dtype.
void to(const std::vector<Param>& params, Device device);
void to(const std::vector<Param>& params, DType dtype);

template <Module M>
StateDict state_dict(M& module) {
  return state_dict(params_of(module));
}
template <Module M>
LoadedKeys load_state_dict(M& module, const StateDict& state, bool strict = true) {
  return load_state_dict(params_of(module), state, strict);
}
template <Module M>
void zero_grad(M& module, bool set_to_none = true) {
  zero_grad(params_of(module), set_to_none);
}
template <Module M>
void to(M& module, Device device) {
  to(params_of(module), device);
}
template <Module M>
void to(M& module, DType dtype) {
  to(params_of(module), dtype);
}
// Training or use: dropout is on or off.
template <Module M>
void train(M& module, bool on = true) {
  Params p;
  module.visit(p);
  for (bool* flag : p.training_flags()) *flag = on;
}
template <Module M>
void eval(M& module) {
  train(module, false);
}

}  // namespace tally
