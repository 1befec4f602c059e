// A hash map from a pair of token ids to a small value: open addressing, linear probing, no removal. Look-up is one
// multiply and usually one cache line, which is what BPE spends its time on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tally {

inline uint64_t pair_key(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}
inline int32_t pair_left(uint64_t key) { return static_cast<int32_t>(key >> 32); }
inline int32_t pair_right(uint64_t key) { return static_cast<int32_t>(key & 0xFFFFFFFFu); }

template <class Value>
class PairMap {
 public:
  explicit PairMap(size_t expected = 0) {
    size_t capacity = 16;
    while (capacity < expected * 2) capacity *= 2;
    resize(capacity);
  }

  // Ids are not negative, so this key never occurs.
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  const Value* find(uint64_t key) const {
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }

  // The value of `key`, added as `fresh` when absent. Valid until the next insert.
  Value& insert(uint64_t key, const Value& fresh) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    size_t i = slot_of(key);
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask_;
    if (slots_[i].key == kEmpty) {
      slots_[i] = {key, fresh};
      ++size_;
    }
    return slots_[i].value;
  }

  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };

  size_t slot_of(uint64_t key) const { return ((key ^ (key >> 29)) * 0x9E3779B97F4A7C15u) >> shift_; }

  void resize(size_t capacity) {
    slots_.assign(capacity, Slot{});
    mask_ = capacity - 1;
    shift_ = 64;
    for (size_t c = capacity; c > 1; c /= 2) --shift_;
  }

  void grow() {
    std::vector<Slot> old;
    old.swap(slots_);
    resize(old.size() * 2);
    for (const Slot& slot : old) {
      if (slot.key == kEmpty) continue;
      size_t i = slot_of(slot.key);
      while (slots_[i].key != kEmpty) i = (i + 1) & mask_;
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0, size_ = 0;
  int shift_ = 64;
};

}  // namespace tally
