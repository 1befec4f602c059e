// What a kernel call costs: the algorithm's minimum, from shapes and host scalars only.
// Bytes: each input read once, each output written once. FLOPs in two counts: matmul (2 per multiply-add; closed forms
// and MFU use these) and other (1 per add, mul, compare, exp ...).
#pragma once

#include <concepts>
#include <type_traits>

#include "tally/core/view.h"

namespace tally {

struct Cost {
  int64_t matmul_flops = 0;
  int64_t other_flops = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t wire_bytes = 0;  // collectives

  TALLY_INLINE Cost& operator+=(const Cost& o) {
    matmul_flops += o.matmul_flops, other_flops += o.other_flops;
    bytes_read += o.bytes_read, bytes_written += o.bytes_written, wire_bytes += o.wire_bytes;
    return *this;
  }
  friend bool operator==(const Cost&, const Cost&) = default;
};

// The one rule for kernel arguments: plain data with a name, a device and a cost. No cost, no compile.
template <class A>
concept KernelArgs = std::is_trivially_copyable_v<A> && requires(const A& a) {
  { A::name } -> std::convertible_to<const char*>;
  { a.device() } -> std::same_as<Device>;
  { a.cost() } -> std::same_as<Cost>;
};

}  // namespace tally
