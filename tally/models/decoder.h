// The pre-norm decoder: x += attention(norm(x)); x += mlp(norm(x)); head(norm(x)).
#pragma once

#include "tally/models/model.h"
#include "tally/nn/attention.h"
#include "tally/nn/mlp.h"

namespace tally {

struct Block {
  Norm attn_norm, mlp_norm;
  Attention attn;
  Mlp mlp;
  void visit(Params& p) {
    p.child("attn_norm", attn_norm), p.child("attn", attn);
    p.child("mlp_norm", mlp_norm), p.child("mlp", mlp);
  }
};

class Decoder : public Model {
 public:
  // GPT-2's initialisation: N(0, init_std), residual outputs N(0, init_std / sqrt(2 layers)), norms 1, biases 0.
  Decoder(const ModelConfig& config, uint64_t seed, Device device, bool values = true);
  Tensor logits(const Tensor& ids, const ForwardContext& context) override;
  // The head counts in scope "head" and the loss in "loss"; in chunks both count in "head".
  Tensor loss(const Tensor& ids, const Tensor& targets, const ForwardContext& context) override;
  void visit(Params& p) override;
  void pack_weights() override;
  const ModelConfig& config() const override { return config_; }
  Device device() const override { return norm_.weight.device(); }
  std::unique_ptr<KvCache> new_cache(int64_t batch, int64_t capacity) const override;

 private:
  Tensor hidden(const Tensor& ids, const ForwardContext& context);  // what the head is given: (B, T, d)
  Tensor head(const Tensor& x) const;
  Tensor drop(const Tensor& x, const ForwardContext& context, int64_t site) const;
  ModelConfig config_;
  Embedding embed_, position_;
  std::vector<Block> blocks_;
  Norm norm_;
  Linear head_;  // without weight when tied
  Rope rope_;
};

}  // namespace tally
