#include "tally/core/arena.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace tally {

namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kGrowth = int64_t{8} << 20;  // at least so much at a time

int64_t rounded(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Addresses cost nothing, but a limit on them (ulimit -v) also covers the rest of the process.
int64_t addresses_wanted() {
  const int64_t memory = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return std::min<int64_t>(memory, static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX)) / 4 * 3);
  return 4 * memory;
}

}  // namespace

bool Arena::reserve() {
  for (int64_t bytes = rounded(addresses_wanted(), kHugePage); bytes >= kGrowth;
       bytes = rounded(bytes / 2, kHugePage)) {
    void* p = mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) continue;
    const int64_t skip = -reinterpret_cast<intptr_t>(p) & (kHugePage - 1);
    base_ = static_cast<char*>(p) + skip;
    reserved_ = bytes - skip;
    return true;
  }
  return false;
}

bool Arena::grow(int64_t bytes) {
  if (base_ == nullptr && !reserve()) return false;
  // The last piece, when free, is part of what is asked for.
  int64_t tail = 0;
  if (!pieces_.empty()) {
    const auto& [offset, piece] = *pieces_.rbegin();
    if (offset + piece.bytes == usable_) tail = piece.bytes;
  }
  const int64_t more = std::max(kGrowth, rounded(bytes - tail, kHugePage));
  if (more > reserved_ - usable_) return false;
  if (mprotect(base_ + usable_, static_cast<size_t>(more), PROT_READ | PROT_WRITE) != 0) return false;
  madvise(base_ + usable_, static_cast<size_t>(more), MADV_HUGEPAGE);
  insert(usable_, {more, false});
  usable_ += more;
  ++growths_;
  return true;
}

void Arena::erase(Pieces::iterator it) {
  by_size_.erase({it->second.bytes, it->first});
  if (it->second.touched) free_ -= it->second.bytes;
  pieces_.erase(it);
}

void Arena::insert(int64_t offset, Piece piece) {
  auto next = pieces_.lower_bound(offset);
  if (next != pieces_.end() && offset + piece.bytes == next->first) {
    piece.bytes += next->second.bytes;
    piece.touched = piece.touched || next->second.touched;
    const auto gone = next++;
    erase(gone);
  }
  if (next != pieces_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == offset) {
      offset = before->first;
      piece.bytes += before->second.bytes;
      piece.touched = piece.touched || before->second.touched;
      erase(before);
    }
  }
  pieces_.emplace(offset, piece);
  by_size_.emplace(piece.bytes, offset);
  if (piece.touched) free_ += piece.bytes;
}

void* Arena::take(int64_t bytes) {
  if constexpr (!kReuses) {
    ++growths_;
    return std::aligned_alloc(64, static_cast<size_t>(rounded(bytes, 64)));
  }
  if (bytes == kSmall && !small_.empty()) {
    const int64_t offset = small_.back();
    small_.pop_back();
    free_ -= kSmall;
    return base_ + offset;
  }
  auto it = by_size_.lower_bound({bytes, 0});
  if (it == by_size_.end() && !small_.empty()) {
    join_small();
    it = by_size_.lower_bound({bytes, 0});
  }
  if (it == by_size_.end()) {
    if (!grow(bytes)) return nullptr;
    it = by_size_.lower_bound({bytes, 0});
  }
  const int64_t offset = it->second;
  const auto piece = pieces_.find(offset);
  const Piece rest{piece->second.bytes - bytes, piece->second.touched};
  erase(piece);
  if (rest.bytes > 0) insert(offset + bytes, rest);
  return base_ + offset;
}

void Arena::give(void* block, int64_t bytes) {
  if constexpr (!kReuses) {
    std::free(block);
    return;
  }
  const int64_t offset = static_cast<char*>(block) - base_;
  if (bytes != kSmall || std::ssize(small_) == kMostSmall) return insert(offset, {bytes, true});
  small_.push_back(offset);
  free_ += kSmall;
}

void Arena::join_small() {
  for (const int64_t offset : small_) {
    free_ -= kSmall;  // insert() counts it
    insert(offset, {kSmall, true});
  }
  small_.clear();
}

void Arena::release() {
  const int64_t page = sysconf(_SC_PAGESIZE);
  join_small();
  by_size_.clear();
  for (auto& [offset, piece] : pieces_) {
    // Only whole pages; what is left of them at the ends belongs to neighbours too.
    const int64_t first = rounded(offset, page), last = (offset + piece.bytes) / page * page;
    if (piece.touched && last > first) madvise(base_ + first, static_cast<size_t>(last - first), MADV_DONTNEED);
    piece.touched = false;
    by_size_.emplace(piece.bytes, offset);
  }
  free_ = 0;
}

}  // namespace tally
