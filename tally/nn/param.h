// Parameters by name. A module lists its own in visit(), nested modules by child(); names, counts, checkpoints and
// optimizer groups all come from that one list.
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
  const std::vector<Param>& all() const { return all_; }

 private:
  std::string prefix_;
  std::vector<Param> all_;
};

template <class M>
std::vector<Param> params_of(M& module) {
  Params p;
  module.visit(p);
  return p.all();
}

int64_t parameter_count(const std::vector<Param>& params);

}  // namespace tally
