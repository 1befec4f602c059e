#include "tally/models/generate.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/replay.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"

namespace tally {

namespace {

// One sequence that is read by a model: tokens in, the logits of the last one out. What goes to the device and comes
// back has a place of its own, so that a card can repeat a token's launches by itself (core/replay.h).
class Sequence {
 public:
  explicit Sequence(Model& model)
      : model_(model),
        device_(model.device()),
        cache_(model.new_cache(1, model.config().context)),
        id_(Tensor::empty(Dims(1, 1), DType::kI32, device_, Category::kData)),
        logits_(Tensor::empty(Dims(1, 1, model.config().vocab_size), DType::kF32, device_, Category::kData)),
        host_id_(sizeof(int32_t), device_),
        host_logits_(logits_.numel() * 4, device_),
        replay_(device_) {
    context_.cache = cache_.get();
    context_.last_only = true;
  }

  int64_t length() const { return cache_->length(); }
  void clear() { cache_->truncate(0); }

  // Valid until the next call.
  std::span<const float> read(std::span<const int32_t> ids) {
    if (ids.size() == 1) {
      *static_cast<int32_t*>(host_id_.data()) = ids[0];
      copy_bytes_async(id_.raw().data, device_, host_id_.data(), kCpu, 4);
      replay_.run([&] { compute(id_); }, launches_observed());
    } else {
      const Tensor host =
          Tensor::from(std::vector<int32_t>(ids.begin(), ids.end()), Dims(1, static_cast<int64_t>(ids.size())));
      compute(to(host, device_));
    }
    const auto* const values = static_cast<const float*>(host_logits_.data());
    copy_bytes_async(host_logits_.data(), kCpu, logits_.raw().data, device_, host_logits_.bytes());
    synchronize(device_);
    return {values, static_cast<size_t>(logits_.numel())};
  }

 private:
  void compute(const Tensor& ids) { copy_(logits_, model_.logits(ids, context_)); }

  Model& model_;
  Device device_;
  std::unique_ptr<KvCache> cache_;
  ForwardContext context_;
  Tensor id_, logits_;
  PinnedBytes host_id_, host_logits_;
  Replay replay_;
};

}  // namespace

void generate(Model& model, std::vector<int32_t> ids, int64_t max_tokens, const SamplerConfig& config,
              const std::function<bool(int32_t)>& on_token) {
  if (ids.empty()) fail("generate: the prompt has no tokens");
  NoGrad quiet;
  PhaseGuard phase("generate");
  const int64_t context = model.config().context;
  Sequence sequence(model);
  size_t unread = std::min(ids.size(), static_cast<size_t>(context));
  for (int64_t n = 0; n < max_tokens; ++n) {
    if (sequence.length() + static_cast<int64_t>(unread) > context) {
      sequence.clear();
      unread = static_cast<size_t>(std::max<int64_t>(1, context / 2));
    }
    const int32_t id = sample(sequence.read(std::span(ids).last(unread)), ids, config, n);
    ids.push_back(id);
    unread = 1;
    if (!on_token(id)) return;
  }
}

}  // namespace tally
