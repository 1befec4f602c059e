// Measures what this machine does with our own kernels (about a second) and caches it by CPU, instruction set and
// threads.
#pragma once

#include "tally/core/hardware.h"
#include "tally/core/view.h"

namespace tally {

// Of the CPU or a card: from the cache file, else measured now and cached. TALLY_MEASURE=1 measures anew. The reference
// stays valid. On a card products are of bf16, as training there has them.
const Hardware& measured_hardware(Device device = kCpu);
Hardware measure_hardware(Device device = kCpu);

}  // namespace tally
