#include "tally/core/saved.h"

#include "tally/base/error.h"

namespace tally {

namespace {
thread_local SavedHome* current_home = nullptr;
}

SavedHome* SavedHome::current() { return current_home; }

SavedHomeGuard::SavedHomeGuard(SavedHome* home) : previous_(std::exchange(current_home, home)) {}
SavedHomeGuard::~SavedHomeGuard() { current_home = previous_; }

Saved::Saved(const Tensor& x, int scope) : tensor_(x, Tensor::WithoutNode()), scope_(scope) {
  if (!x.defined()) return;
  if (current_home != nullptr) [[unlikely]] {
    ticket_ = current_home->put(tensor_, scope);
    if (ticket_ >= 0) home_ = Ref<SavedHome>(current_home);
    if (ticket_ != SavedHome::kStays) {
      tensor_.storage_ = {};
      return;
    }
  }
  hold();
}

Saved::Saved(Saved&& o) noexcept
    : tensor_(std::move(o.tensor_)),
      version_(o.version_),
      home_(std::move(o.home_)),
      ticket_(o.ticket_),
      scope_(o.scope_) {}

void Saved::hold() {
  version_ = tensor_.version();
  tensor_.storage_->hold_saved(scope_);
}

void Saved::let_go() {
  if (!tensor_.defined()) return;
  tensor_.storage_->drop_saved();
  tensor_.storage_ = {};
}

const Tensor& Saved::get(const char* op, bool again) {
  if (!tensor_.defined() && home_) {
    tensor_ = home_->bring(ticket_, again);
    hold();
  }
  if (tensor_.defined() && tensor_.version() != version_) [[unlikely]]
    fail(
        "one of the variables needed for gradient computation has been modified by an inplace operation: the backward "
        "of {} needs the {} tensor of shape {} at version {}, but it is at version {}; change a copy of it, or change "
        "it after the backward",
        op, name_of(tensor_.dtype()), str(tensor_.sizes()), version_, tensor_.version());
  return tensor_;
}

Tensor Saved::take(const char* op) {
  get(op, false);
  if (tensor_.defined()) tensor_.storage_->drop_saved();
  Tensor given = std::move(tensor_);
  clear();
  return given;
}

void Saved::put_back() {
  if (home_) let_go();
}

void Saved::clear() {
  let_go();
  if (home_) std::exchange(home_, {})->drop(ticket_);
}

}  // namespace tally
