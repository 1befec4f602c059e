// Saved: one tensor that a node of the tape keeps for its backward, with the version it was saved at. Where it stays is
// up to the SavedHome that is current on the thread: in the node (none), in host memory (core/offload.h) or nowhere, to
// be computed again (core/recompute.h). Whatever is kept is accounted in Ledger::saved().
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// Keeps saved tensors in another place than the node. One object may serve many nodes, each tensor under a ticket.
class SavedHome {
 public:
  static constexpr int kStays = -1;    // the node keeps this tensor itself
  static constexpr int kNowhere = -2;  // the node's backward will not run: nobody keeps it
  std::atomic<int32_t> references{0};
  SavedHome() = default;
  SavedHome(const SavedHome&) = delete;
  SavedHome& operator=(const SavedHome&) = delete;
  virtual ~SavedHome() = default;
  virtual int put(const Tensor& x, int scope) = 0;   // a ticket of 0 or more, or one of the two above
  virtual Tensor bring(int ticket, bool again) = 0;  // again: it may be asked for again, the graph is retained
  virtual void drop(int ticket) = 0;                 // will not be asked for any longer

  static SavedHome* current();
};

// Makes `home` current on this thread for the lifetime of this object; null: the nodes themselves.
class SavedHomeGuard {
 public:
  explicit SavedHomeGuard(SavedHome* home);
  SavedHomeGuard(const SavedHomeGuard&) = delete;
  SavedHomeGuard& operator=(const SavedHomeGuard&) = delete;
  ~SavedHomeGuard();

 private:
  SavedHome* previous_;
};

class Saved {
 public:
  Saved(const Tensor& x, int scope);
  Saved(Saved&& o) noexcept;
  Saved& operator=(Saved&&) = delete;
  ~Saved() { clear(); }

  // The tensor, brought back; again: put_back() follows. Throws Error when it was changed since: `op` is whose backward
  // asks.
  const Tensor& get(const char* op, bool again);
  // The same, given away: nothing is kept.
  Tensor take(const char* op);
  // Back to where it was before get(): the node may run again.
  void put_back();
  void clear();

 private:
  void let_go();
  void hold();
  Tensor tensor_;  // undefined while it is at home_
  int64_t version_ = 0;
  Ref<SavedHome> home_;
  int ticket_ = SavedHome::kStays, scope_ = 0;
};

}  // namespace tally
