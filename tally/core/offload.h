// OffloadSaved: while such an object is alive, tensors that ops of this thread save for their backward wait in host
// memory and come back when the backward asks for them.
//
//   { OffloadSaved scope(1 << 20); loss = model(x); }   // tensors of 1 MiB and more
//   backward(loss);
//
// On a card they are copied to page-locked memory in the order of the card's work, so nothing waits. On the CPU the
// copy is another block of the same memory, and on meta one without data: values and accounts are those of a card. Host
// copies are in Ledger::offloaded_bytes() and in no category, so live and peak bytes are the device's. Parameters stay.
// Inside core/replay.h it cannot be used: a captured stretch of work takes no host memory.
#pragma once

#include "tally/core/saved.h"

namespace tally {

class OffloadSaved {
 public:
  explicit OffloadSaved(int64_t least_bytes = 0);

 private:
  Ref<SavedHome> home_;
  SavedHomeGuard guard_;
};

}  // namespace tally
