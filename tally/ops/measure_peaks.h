// Measures what this machine does with our own kernels (about a second) and caches it by CPU, instruction set and
// threads.
#pragma once

#include "tally/core/hardware.h"

namespace tally {

// From the cache file, else measured now and cached. TALLY_MEASURE=1 measures anew. The reference stays valid.
const Hardware& measured_hardware();
Hardware measure_hardware();

}  // namespace tally
