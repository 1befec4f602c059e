// One thread pool for every CPU kernel: workers spin briefly, then sleep. Results must not depend on the number
// of threads, so work is cut by `grain` (a property of the problem), never by the thread count, and a chunk
// writes only its own outputs. Nested calls run inline on the calling thread.
#pragma once

#include <cstdint>

namespace tally {

// Threads used by parallel_for: TALLY_THREADS, else the CPUs this process may run on. At least 1.
int num_threads();
void set_num_threads(int n);  // not from inside parallel_for

namespace detail {
using RangeFunction = void (*)(const void* context, int64_t begin, int64_t end);
void parallel_range(int64_t n, int64_t grain, RangeFunction function, const void* context);
}  // namespace detail

// Calls f(begin, end) over disjoint ranges that cover [0, n); each range starts at a multiple of `grain` and is
// `grain` long (the last may be shorter). Order and thread are unspecified. The first exception is rethrown here.
template <class F>
inline __attribute__((always_inline)) void parallel_for(int64_t n, int64_t grain, const F& f) {
  detail::parallel_range(
      n, grain, [](const void* c, int64_t b, int64_t e) { (*static_cast<const F*>(c))(b, e); }, &f);
}

}  // namespace tally
