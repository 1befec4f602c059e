// Intrusive shared ownership: T has `std::atomic<int32_t> references{0}`. Smaller and cheaper than shared_ptr, and
// `unique()` is exact, which in-place gradient accumulation relies on.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace tally {

// How a Ref holds its object. A class that is incomplete where Refs to it are copied declares its own pair.
template <class T>
void retain(T* p) {
  p->references.fetch_add(1, std::memory_order_relaxed);
}
template <class T>
void release(T* p) {
  if (p->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete p;
}

template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* p) : p_(p) {
    if (p_) retain(p_);
  }
  Ref(const Ref& o) : Ref(o.p_) {}
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_) release(p_);
  }

  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool unique() const { return p_ && p_->references.load(std::memory_order_acquire) == 1; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }

 private:
  T* p_ = nullptr;
};

}  // namespace tally
