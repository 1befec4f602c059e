// Parameters by name. A module is any struct with visit(Params&): it lists its own parameters, nested modules by
// child(), vectors of modules by list(), and what tells training from use by training(). Names, counts, checkpoints,
// optimizer groups and what stands in module.h all come from that one list.
#pragma once

#include <string>
#include <vector>

#include "tally/core/tensor.h"

namespace tally {

struct Param {
  std::string name;  // "blocks.3.attn.q.weight"
  Tensor* tensor;
};

class Params {
 public:
  void operator()(const char* name, Tensor& t) {
    if (t.defined()) all_.push_back({prefix_ + name, &t});
  }
  template <class M>
  void child(const std::string& name, M& module) {
    const size_t length = prefix_.size();
    prefix_ += name + ".";
    module.visit(*this);
    prefix_.resize(length);
  }
  // "layers.0", "layers.1" ...
  template <class M>
  void list(const std::string& name, std::vector<M>& modules) {
    for (size_t i = 0; i < modules.size(); ++i) child(name + "." + std::to_string(i), modules[i]);
  }
  // A flag that train() and eval() set.
  void training(bool& flag) { training_.push_back(&flag); }
  const std::vector<Param>& all() const { return all_; }
  const std::vector<bool*>& training_flags() const { return training_; }

 private:
  std::string prefix_;
  std::vector<Param> all_;
  std::vector<bool*> training_;
};

template <class M>
concept Module = requires(M& module, Params& p) {
  module.visit(p);
};

template <Module M>
std::vector<Param> params_of(M& module) {
  Params p;
  module.visit(p);
  return p.all();
}

int64_t parameter_count(const std::vector<Param>& params);
template <Module M>
int64_t parameter_count(M& module) {
  return parameter_count(params_of(module));
}

}  // namespace tally
