// Keys and values of the positions seen so far, one pair of tensors a layer, of fixed capacity. Their number is also on
// the device, where kernels that are replayed read it (ops/cache.h).
#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include "tally/core/tensor.h"
#include "tally/ops/rope_kernels.h"

namespace tally {

class KvCache {
 public:
  // (batch, capacity, kv_heads, head_dim) a tensor, two a layer, and the position; all in Category::kCache.
  KvCache(int64_t layers, int64_t batch, int64_t capacity, int64_t kv_heads, int64_t head_dim, DType dtype,
          Device device);

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  const Tensor& position() const { return position_; }  // (1) i32: length() in the order of the device's stream
  // Writes k and v (batch, t, kv_heads, head_dim) at position length() of a layer and returns what the layer's queries
  // may see: the first length() + t positions. Throws Error beyond the capacity.
  std::pair<Tensor, Tensor> append(int64_t layer, const Tensor& k, const Tensor& v);
  // The same for k turned by rope() from row length() of the table on; before them q (batch, t, heads, head_dim),
  // turned.
  std::tuple<Tensor, Tensor, Tensor> append_turned(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v,
                                                   const Tensor& table, RopeStyle style);
  void advance(int64_t t);  // once all layers have appended
  void truncate(int64_t length);

 private:
  int64_t end_of(const Tensor& k) const;  // after k is appended

  std::vector<Tensor> keys_, values_;
  Tensor position_;
  int64_t capacity_, length_ = 0;
};

}  // namespace tally
