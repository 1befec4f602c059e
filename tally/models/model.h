// A language model: token ids to logits. Decoder (decoder.h) is the config-driven one.
#pragma once

#include <memory>

#include "tally/core/tensor.h"
#include "tally/models/config.h"
#include "tally/nn/kv_cache.h"
#include "tally/nn/param.h"

namespace tally {

// What a forward may depend on besides ids and weights.
struct ForwardContext {
  bool training = false;     // dropout is on
  uint64_t seed = 0;         // dropout's
  Tensor step;               // one i64 on the device: dropout's masks are of this step; undefined: of step 0
  KvCache* cache = nullptr;  // ids are the positions after its length; it is advanced
  bool last_only = false;    // logits of the last position only: (B, 1, V)
};

class Model {
 public:
  virtual ~Model() = default;
  // ids (B, T) i32 -> logits (B, T, V). Throws Error when T goes beyond the context.
  virtual Tensor logits(const Tensor& ids, const ForwardContext& context = {}) = 0;
  virtual void visit(Params& p) = 0;
  virtual const ModelConfig& config() const = 0;
  virtual Device device() const = 0;
  virtual std::unique_ptr<KvCache> new_cache(int64_t batch, int64_t capacity) const = 0;

  // Lays the matrices out for decoding (ops/matmul.h): the same bits, faster for few rows. For inference only, once:
  // they are no parameters any more. Nothing happens to a model of f64.
  virtual void pack_weights() = 0;

  std::vector<Param> params() { return params_of(*this); }
  // Mean cross-entropy of targets (B, T), which are left out where -100. Logits of more than 512 MiB are never in
  // memory as a whole (ops/linear_cross_entropy.h).
  virtual Tensor loss(const Tensor& ids, const Tensor& targets, const ForwardContext& context = {}) = 0;
};

// The one place that turns a config into a model.
// Without `values` the parameters are left as they are in memory, to be loaded.
std::unique_ptr<Model> make_model(const ModelConfig& config, uint64_t seed, Device device = kCpu, bool values = true);

}  // namespace tally
