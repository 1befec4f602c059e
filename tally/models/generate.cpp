#include "tally/models/generate.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

Tensor ids_tensor(std::span<const int32_t> ids, Device device) {
  const Tensor host =
      Tensor::from(std::vector<int32_t>(ids.begin(), ids.end()), Dims(1, static_cast<int64_t>(ids.size())));
  return to(host, device);
}

}  // namespace

void generate(Model& model, std::vector<int32_t> ids, int64_t max_tokens, const SamplerConfig& config,
              const std::function<bool(int32_t)>& on_token) {
  if (ids.empty()) fail("generate: the prompt has no tokens");
  NoGrad quiet;
  PhaseGuard phase("generate");
  const int64_t context = model.config().context;
  const auto cache = model.new_cache(1, context);
  ForwardContext forward;
  forward.cache = cache.get();
  forward.last_only = true;
  size_t unread = std::min(ids.size(), static_cast<size_t>(context));
  for (int64_t n = 0; n < max_tokens; ++n) {
    if (cache->length() + static_cast<int64_t>(unread) > context) {
      cache->truncate(0);
      unread = static_cast<size_t>(std::max<int64_t>(1, context / 2));
    }
    Tensor y = model.logits(ids_tensor(std::span(ids).last(unread), model.device()), forward);
    y = to(to(contiguous(y), DType::kF32), kCpu);
    const std::span<const float> row(y.data<float>(), static_cast<size_t>(y.numel()));
    const int32_t id = sample(row, ids, config, n);
    ids.push_back(id);
    unread = 1;
    if (!on_token(id)) return;
  }
}

}  // namespace tally
