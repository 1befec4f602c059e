// An index outside its range that a kernel of a card met. Kernels run behind the host's back, so such a kernel writes
// down the first one, goes on as if the element were not there (its results say), and the host throws IndexError where
// it next waits for the card (synchronize, a copy to the host, Moment::wait). The card's context stays whole.
#pragma once

#include <cstdint>

namespace tally {

// Page-locked memory that a card and the host see, one a card. `taken` is on the card and not 0 from the first fault
// until the host has read it, so that later ones do not mix with it.
struct IndexFault {
  unsigned* taken;
  const char* op;  // a literal of the host
  int64_t index, size;
  int there;  // written last
};

namespace detail {
IndexFault* index_fault(int device);  // core/device_cuda.cpp; made at the first call
}

}  // namespace tally
