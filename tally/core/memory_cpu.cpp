#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tally/base/error.h"
#include "tally/core/arena.h"
#include "tally/core/memory.h"

namespace tally {

namespace {

constexpr int64_t kGuardBytes = 64;
constexpr unsigned char kGuardFill = 0xA5;
struct Pool {
  std::mutex mutex;
  BlockCounts counts;
  int64_t most = 0;  // live bytes there ever were, whatever reset_block_peak() did
  Arena arena;
  std::map<void*, int64_t> guarded;  // live blocks with guards, and their bytes
  bool guards = false;
  int64_t damaged = 0;
};

Pool& pool() {
  static Pool* const p = new Pool;  // never destroyed: tensors may outlive static objects
  return *p;
}

void* guarded_block(int64_t bytes) {
  auto* p = static_cast<unsigned char*>(std::aligned_alloc(kBlockRounding, block_bytes(bytes + 2 * kGuardBytes)));
  if (p == nullptr) return nullptr;
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
  void* const block = p.guards ? guarded_block(bytes) : p.arena.take(bytes);
  if (block == nullptr) fail_run("out of memory: the system has no {} bytes for a tensor", bytes);
  if (p.guards) p.guarded[block] = bytes;
  p.counts.cached = p.arena.free_bytes();
  p.counts.system_blocks = p.arena.growths();
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
  if (const auto it = p.guarded.find(block); it != p.guarded.end()) {
    p.guarded.erase(it);
    return check_guards(p, static_cast<unsigned char*>(block), bytes);
  }
  p.arena.give(block, bytes);
  // Never keep much more free memory than the largest amount that was ever in use.
  if (p.counts.live + p.arena.free_bytes() > p.most + p.most / 4 + (int64_t{64} << 20)) p.arena.release();
  p.counts.cached = p.arena.free_bytes();
}

const BlockCounts& cpu_blocks() { return pool().counts; }

void reset_block_peak() {
  BlockCounts& c = pool().counts;
  c.peak = c.live, c.at_peak = c.live_by;
}

void release_cached_blocks() {
  Pool& p = pool();
  std::lock_guard lock(p.mutex);
  p.arena.release();
  p.counts.cached = 0;
}

void set_memory_guards(bool on) { pool().guards = on; }
int64_t damaged_guards() { return pool().damaged; }

}  // namespace tally
