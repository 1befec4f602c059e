#include "tally/core/memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tally/base/error.h"
#include "tally/base/rng.h"
#include "tally/core/arena.h"
#include "tally/core/device.h"
#include "tally/core/dtype.h"
#include "tally/core/segments.h"

namespace tally {

namespace {

constexpr int64_t kGuardBytes = 256;
constexpr unsigned char kGuardFill = 0xA5;

// The blocks of one device.
class Pool {
 public:
  explicit Pool(Device device) : device_(device), segments_(device.index) {}

  void* take(int64_t bytes, Category category) {
    const std::lock_guard lock(mutex_);
    void* const block = guards_ ? guarded(bytes) : plain_take(bytes);
    if (block == nullptr) throw OutOfMemory(device_, bytes, counts.live);
    if (guards_) guarded_[block] = bytes;
    if (!on_cpu()) live_set_ += hash(reinterpret_cast<uintptr_t>(block), static_cast<uint64_t>(bytes));
    count(bytes, category);
    return block;
  }

  void* take_pinned(int64_t bytes, Category category) {
    const std::lock_guard lock(mutex_);
    void* const block = detail::pinned_take(bytes);
    if (block == nullptr) throw OutOfMemory(device_, bytes, counts.live);
    count(bytes, category);
    return block;
  }

  void give_pinned(void* block, int64_t bytes, Category category) {
    const std::lock_guard lock(mutex_);
    detail::pinned_give(block);
    count(-bytes, category);
  }

  void give(void* block, int64_t bytes, Category category) {
    const std::lock_guard lock(mutex_);
    if (!on_cpu()) live_set_ -= hash(reinterpret_cast<uintptr_t>(block), static_cast<uint64_t>(bytes));
    if (const auto it = guarded_.empty() ? guarded_.end() : guarded_.find(block); it != guarded_.end()) {
      guarded_.erase(it);
      check_guards(static_cast<char*>(block), bytes);
    } else {
      plain_give(block, bytes);
      // Never keep much more free memory of the system's than the largest amount that was ever in use.
      if (on_cpu() && counts.live - bytes + arena_.free_bytes() > most_ + most_ / 4 + (int64_t{64} << 20))
        arena_.release();
    }
    count(-bytes, category);
  }

  void release() {
    const std::lock_guard lock(mutex_);
    on_cpu() ? arena_.release() : segments_.release();
    update();
  }

  // Free memory follows from live blocks and from what was taken from the system (segments.h joins neighbours).
  uint64_t fingerprint() const {
    return hash(live_set_, hash(static_cast<uint64_t>(counts.system_blocks), static_cast<uint64_t>(counts.reserved)));
  }

  void set_guards(bool on) { guards_ = on; }
  int64_t damaged() const { return damaged_; }

  BlockCounts counts;
  std::atomic<int64_t> external{0};

 private:
  bool on_cpu() const { return device_.kind == DeviceKind::kCpu; }
  void* plain_take(int64_t bytes) { return on_cpu() ? arena_.take(bytes) : segments_.take(bytes); }
  void plain_give(void* block, int64_t bytes) { on_cpu() ? arena_.give(block, bytes) : segments_.give(block, bytes); }
  void count(int64_t bytes, Category category) {
    counts.live += bytes;
    counts.live_by[static_cast<size_t>(category)] += bytes;
    if (counts.live > counts.peak) counts.peak = counts.live, counts.at_peak = counts.live_by;
    most_ = std::max(most_, counts.live);
    update();
  }
  void update() {
    counts.cached = on_cpu() ? arena_.free_bytes() : segments_.free_bytes();
    counts.reserved = on_cpu() ? counts.live + counts.cached : segments_.reserved_bytes();
    counts.system_blocks = on_cpu() ? arena_.growths() : segments_.growths();
  }

  void fill(char* p, int byte, int64_t bytes) {
    if (on_cpu()) {
      std::memset(p, byte, static_cast<size_t>(bytes));
    } else {
      detail::device_fill(device_.index, p, byte, bytes);
    }
  }
  void* guarded(int64_t bytes) {
    const int64_t all = block_bytes(bytes + 2 * kGuardBytes);
    auto* p = static_cast<char*>(on_cpu() ? std::aligned_alloc(kBlockRounding, static_cast<size_t>(all))
                                          : segments_.take(all));
    if (p == nullptr) return nullptr;
    fill(p, kGuardFill, kGuardBytes);
    fill(p + kGuardBytes, 0xFF, bytes);
    fill(p + kGuardBytes + bytes, kGuardFill, kGuardBytes);
    return p + kGuardBytes;
  }
  void check_guards(char* block, int64_t bytes) {
    std::array<unsigned char, kGuardBytes> guard;
    bool good = true;
    for (const char* const at : {block - kGuardBytes, block + bytes}) {
      copy_bytes(guard.data(), kCpu, at, device_, kGuardBytes);
      good = good && std::all_of(guard.begin(), guard.end(), [](unsigned char b) { return b == kGuardFill; });
    }
    damaged_ += !good;
    if (on_cpu()) {
      std::free(block - kGuardBytes);
    } else {
      segments_.give(block - kGuardBytes, block_bytes(bytes + 2 * kGuardBytes));
    }
  }

  static uint64_t hash(uint64_t a, uint64_t b) {
    const Random4 r = philox(a, b, 0);
    return uint64_t{r.v[0]} << 32 | r.v[1];
  }

  Device device_;
  std::mutex mutex_;
  uint64_t live_set_ = 0;  // the sum of a hash of each live block; of cards
  int64_t most_ = 0;       // live bytes there ever were, whatever reset_block_peak() did
  Arena arena_;
  Segments segments_;
  std::map<void*, int64_t> guarded_;  // live blocks with guards, and their bytes
  bool guards_ = false;
  int64_t damaged_ = 0;
};

constexpr size_t kMostPools = 65;

// Never destroyed: tensors may outlive static objects.
constinit std::array<std::atomic<Pool*>, kMostPools> pools{};

Pool& pool_of(Device device) {
  const size_t i = device.kind == DeviceKind::kCpu ? 0 : 1 + static_cast<size_t>(device.index);
  TALLY_ASSERT(i < kMostPools);
  std::atomic<Pool*>& pool = pools[i];
  if (Pool* const there = pool.load(std::memory_order_acquire)) [[likely]]
    return *there;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (pool.load() == nullptr) pool.store(new Pool(device));
  return *pool.load();
}

}  // namespace

OutOfMemory::OutOfMemory(Device where, int64_t bytes, int64_t live_bytes)
    : RunError(fmt::format("out of memory: {} has no {} bytes for a tensor (live blocks: {} bytes)",
                           where.kind == DeviceKind::kCpu ? "the system" : name_of(where), bytes, live_bytes)),
      device(where),
      live(live_bytes) {}

void* take_block(Device device, int64_t bytes, Category category) {
  if (device.kind == DeviceKind::kMeta || bytes == 0) return nullptr;
  return pool_of(device).take(bytes, category);
}

void give_block(Device device, void* block, int64_t bytes, Category category) {
  if (device.kind == DeviceKind::kMeta || block == nullptr) return;
  pool_of(device).give(block, bytes, category);
}

void* take_pinned_block(int64_t bytes, Category category) {
  return bytes == 0 ? nullptr : pool_of(kCpu).take_pinned(bytes, category);
}

void give_pinned_block(void* block, int64_t bytes, Category category) {
  if (block != nullptr) pool_of(kCpu).give_pinned(block, bytes, category);
}

const BlockCounts& blocks_of(Device device) { return pool_of(device).counts; }

int64_t external_bytes(Device device) { return pool_of(device).external; }
void count_external(Device device, int64_t bytes) { pool_of(device).external += bytes; }

void reset_block_peak(Device device) {
  BlockCounts& c = pool_of(device).counts;
  c.peak = c.live, c.at_peak = c.live_by;
}

void release_cached_blocks(Device device) { pool_of(device).release(); }

uint64_t block_fingerprint(Device device) { return pool_of(device).fingerprint(); }

void set_memory_guards(bool on, Device device) { pool_of(device).set_guards(on); }
int64_t damaged_guards(Device device) { return pool_of(device).damaged(); }

}  // namespace tally
