#include "tally/nn/kv_cache.h"

#include "tally/base/error.h"
#include "tally/ops/cache.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/view.h"

namespace tally {

KvCache::KvCache(int64_t layers, int64_t batch, int64_t capacity, int64_t kv_heads, int64_t head_dim, DType dtype,
                 Device device)
    : position_(Tensor::empty(Dims(1), DType::kI32, device, Category::kCache)), capacity_(capacity) {
  fill_(position_, 0);
  for (int64_t i = 0; i < layers; ++i) {
    const Dims size(batch, capacity, kv_heads, head_dim);
    keys_.push_back(Tensor::empty(size, dtype, device, Category::kCache));
    values_.push_back(Tensor::empty(size, dtype, device, Category::kCache));
  }
}

int64_t KvCache::end_of(const Tensor& k) const {
  const int64_t end = length_ + k.size(1);
  if (end > capacity_) fail("the cache holds {} positions; {} are needed", capacity_, end);
  return end;
}

std::tuple<Tensor, Tensor, Tensor> KvCache::append_turned(int64_t layer, const Tensor& q, const Tensor& k,
                                                          const Tensor& v, const Tensor& table, RopeStyle style) {
  const int64_t end = end_of(k);
  Tensor turned = rope_cache_write(keys_[layer], values_[layer], q.detach(), k.detach(), v.detach(), table, style,
                                   length_, position_);
  return {std::move(turned), slice(keys_[layer], 1, 0, end), slice(values_[layer], 1, 0, end)};
}

std::pair<Tensor, Tensor> KvCache::append(int64_t layer, const Tensor& k, const Tensor& v) {
  const int64_t end = end_of(k);
  cache_write(keys_[layer], values_[layer], k.detach(), v.detach(), length_, position_);
  return {slice(keys_[layer], 1, 0, end), slice(values_[layer], 1, 0, end)};
}

void KvCache::advance(int64_t t) {
  length_ += t;
  cache_advance(position_, t);
}

void KvCache::truncate(int64_t length) {
  length_ = length;
  fill_(position_, static_cast<double>(length));
}

}  // namespace tally
