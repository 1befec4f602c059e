#include "tally/core/offload.h"

#include <algorithm>
#include <vector>

#include "tally/core/device.h"
#include "tally/core/ledger.h"

namespace tally {

namespace {

void move_bytes(const Tensor& to, const Tensor& from) {
  const int64_t n = from.numel() * from.element_size();
  Ledger::current().spend("offload", {0, 0, 0, 0, n});
  copy_bytes_async(to.raw().data, to.device(), from.raw().data, from.device(), n);
}

class HostMemory : public SavedHome {
 public:
  explicit HostMemory(int64_t least) : least_(least) {}

  int put(const Tensor& x, int) override {
    int64_t low = 0, span = 1;  // of the elements that x reaches: from low below its first, so many
    for (int i = 0; i < x.dim(); ++i) {
      const int64_t reach = (x.sizes()[i] - 1) * x.strides()[i];
      low -= std::min<int64_t>(reach, 0);
      span += std::abs(reach);
    }
    const int64_t bytes = x.numel() * x.element_size();
    // What is a small part of its span, as one column, or repeats itself, as an expanded view, stays.
    if (bytes == 0 || bytes < least_ || x.category() == Category::kParameter || span > 2 * x.numel() ||
        2 * span < x.numel())
      return kStays;
    const Tensor part = x.alias(Dims(span), Dims(1), x.storage_offset() - low);
    Tensor there = Tensor::empty_offloaded(Dims(span), x.dtype(), x.device());
    move_bytes(there, part);
    if (free_.empty()) free_.push_back(static_cast<int>(kept_.size())), kept_.emplace_back();
    const int ticket = free_.back();
    free_.pop_back();
    kept_[static_cast<size_t>(ticket)] = {std::move(there), x.sizes(), x.strides(), low, x.device(), x.category()};
    return ticket;
  }

  Tensor bring(int ticket, bool) override {
    const Kept& k = kept_[static_cast<size_t>(ticket)];
    const Tensor part = Tensor::empty(k.there.sizes(), k.there.dtype(), k.device, k.category);
    move_bytes(part, k.there);
    return part.alias(k.size, k.stride, k.low);
  }

  void drop(int ticket) override {
    kept_[static_cast<size_t>(ticket)].there = {};
    free_.push_back(ticket);
  }

 private:
  struct Kept {
    Tensor there;
    Dims size, stride;
    int64_t low = 0;
    Device device;
    Category category;
  };
  int64_t least_;
  std::vector<Kept> kept_;  // by ticket
  std::vector<int> free_;   // tickets
};

}  // namespace

OffloadSaved::OffloadSaved(int64_t least_bytes) : home_(new HostMemory(least_bytes)), guard_(home_.get()) {}

}  // namespace tally
