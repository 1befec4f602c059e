#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tally/base/error.h"
#include "tally/core/memory.h"

namespace tally {

namespace {

constexpr int64_t kGuardBytes = 64;
constexpr unsigned char kGuardFill = 0xA5;
constexpr int64_t kHugePage = int64_t{2} << 20;

// Free blocks by size. A request takes the smallest free block that is at most an eighth too large, so that steps of
// equal shapes never go to the system after the first, and a free block is never wasted on a small tensor.
struct Pool {
  std::mutex mutex;
  BlockCounts counts;
  int64_t most = 0;  // live bytes there ever were, whatever reset_block_peak() did
  std::multimap<int64_t, void*> free;
  std::map<void*, int64_t> capacity;  // of every live block
  bool guards = false;
  int64_t damaged = 0;
};

Pool& pool() {
  static Pool* const p = new Pool;  // never destroyed: tensors may outlive static objects
  return *p;
}

void* system_block(int64_t bytes) {
  const int64_t alignment = bytes >= kHugePage ? kHugePage : 4096;
  const int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* p = bytes >= 4096 ? std::aligned_alloc(alignment, rounded) : std::aligned_alloc(kBlockRounding, bytes);
  if (p == nullptr) fail_run("out of memory: the system has no {} bytes for a tensor", bytes);
  if (bytes >= kHugePage) madvise(p, rounded, MADV_HUGEPAGE);
  return p;
}

void release_all(Pool& p) {
  for (const auto& [size, block] : p.free) std::free(block);
  p.free.clear();
  p.counts.cached = 0;
}

void* guarded_block(int64_t bytes) {
  auto* p = static_cast<unsigned char*>(std::aligned_alloc(kBlockRounding, block_bytes(bytes + 2 * kGuardBytes)));
  if (p == nullptr) fail_run("out of memory: the system has no {} bytes for a tensor", bytes);
  std::memset(p, kGuardFill, kGuardBytes);
  std::memset(p + kGuardBytes, 0xFF, bytes);
  std::memset(p + kGuardBytes + bytes, kGuardFill, kGuardBytes);
  return p + kGuardBytes;
}

void check_guards(Pool& p, unsigned char* block, int64_t bytes) {
  bool good = true;
  for (int64_t i = 0; i < kGuardBytes; ++i)
    good = good && block[i - kGuardBytes] == kGuardFill && block[bytes + i] == kGuardFill;
  p.damaged += !good;
  std::free(block - kGuardBytes);
}

}  // namespace

void* take_block(Device device, int64_t bytes, Category category) {
  if (device.kind == DeviceKind::kMeta || bytes == 0) return nullptr;
  if (device.kind != DeviceKind::kCpu) fail("this build has no {} memory", "cuda");
  Pool& p = pool();
  std::lock_guard lock(p.mutex);
  void* block = nullptr;
  if (p.guards) {
    block = guarded_block(bytes);
    p.capacity[block] = -bytes;
  } else if (auto it = p.free.lower_bound(bytes); it != p.free.end() && it->first <= bytes + bytes / 8) {
    block = it->second;
    p.capacity[block] = it->first;
    p.counts.cached -= it->first;
    p.free.erase(it);
  } else {
    block = system_block(bytes);
    p.capacity[block] = bytes;
    ++p.counts.system_blocks;
  }
  BlockCounts& c = p.counts;
  c.live += bytes;
  c.live_by[static_cast<size_t>(category)] += bytes;
  if (c.live > c.peak) c.peak = c.live, c.at_peak = c.live_by;
  p.most = std::max(p.most, c.live);
  return block;
}

void give_block(Device device, void* block, int64_t bytes, Category category) {
  if (device.kind != DeviceKind::kCpu || block == nullptr) return;
  Pool& p = pool();
  std::lock_guard lock(p.mutex);
  p.counts.live -= bytes;
  p.counts.live_by[static_cast<size_t>(category)] -= bytes;
  const auto it = p.capacity.find(block);
  const int64_t capacity = it->second;
  p.capacity.erase(it);
  if (capacity < 0) return check_guards(p, static_cast<unsigned char*>(block), -capacity);
  p.free.emplace(capacity, block);
  p.counts.cached += capacity;
  // Never keep more free memory than the largest amount that was ever in use.
  if (p.counts.live + p.counts.cached > p.most + p.most / 4 + (int64_t{64} << 20)) release_all(p);
}

const BlockCounts& cpu_blocks() { return pool().counts; }

void reset_block_peak() {
  BlockCounts& c = pool().counts;
  c.peak = c.live, c.at_peak = c.live_by;
}

void release_cached_blocks() {
  std::lock_guard lock(pool().mutex);
  release_all(pool());
}

void set_memory_guards(bool on) { pool().guards = on; }
int64_t damaged_guards() { return pool().damaged; }

}  // namespace tally
