// Blocks: where a tensor's memory is taken and given back. Counting happens here, below the ledger and above the cache
// of free blocks, so that "measured" memory is never the ledger read twice.
#pragma once

#include <cstdint>

#include "tally/base/error.h"
#include "tally/core/ledger.h"

namespace tally {

// Every block is rounded to this many bytes, on every device.
constexpr int64_t kBlockRounding = 256;
constexpr int64_t block_bytes(int64_t bytes) { return (bytes + kBlockRounding - 1) / kBlockRounding * kBlockRounding; }

// A device that has no block of the size asked for.
class OutOfMemory : public RunError {
 public:
  OutOfMemory(Device where, int64_t bytes, int64_t live_bytes);
  Device device;
  int64_t live;  // bytes of the device's blocks at that moment
};

// `bytes` must be rounded. Returns null on meta and for 0 bytes. Throws OutOfMemory when the system has no memory.
void* take_block(Device device, int64_t bytes, Category category);
void give_block(Device device, void* block, int64_t bytes, Category category);
// The same in page-locked host memory, counted as the CPU's; it goes back to the system at once.
void* take_pinned_block(int64_t bytes, Category category);
void give_pinned_block(void* block, int64_t bytes, Category category);

struct BlockCounts {
  int64_t live = 0, peak = 0;
  CategoryBytes live_by{}, at_peak{};
  int64_t cached = 0;         // free memory kept for reuse
  int64_t reserved = 0;       // live and cached
  int64_t system_blocks = 0;  // how often memory was taken from the system
};
// Live block bytes of the CPU or a card. reset_block_peak() starts a new peak at what is live now.
const BlockCounts& blocks_of(Device device);
void reset_block_peak(Device device = kCpu);
void release_cached_blocks(Device device = kCpu);
inline const BlockCounts& cpu_blocks() { return blocks_of(kCpu); }
// Bytes of the device's live blocks, as torch.cuda.memory_allocated.
inline int64_t memory_allocated(Device device) { return blocks_of(device).live; }

// Bytes of live tensors on memory that others own (DLPack): in no other count. Charged by Storage.
int64_t external_bytes(Device device = kCpu);
void count_external(Device device, int64_t bytes);

// A number for where a card's blocks lie: equal numbers mean that the same takes get the same addresses.
uint64_t block_fingerprint(Device device);

// For tests: fills new blocks with NaN bytes and puts guard bytes around each; a damaged guard is counted.
void set_memory_guards(bool on, Device device = kCpu);
int64_t damaged_guards(Device device = kCpu);

}  // namespace tally
