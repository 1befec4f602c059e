// The CPU's memory for tensors: one range of addresses, reserved once and made usable from its start as more is needed.
// A request takes the smallest free piece that holds it (best fit), the lowest of equals, and gives the rest back;
// a freed piece joins its free neighbours. So buffers of one shape are reused for any other, steps of equal shapes take
// nothing from the system after the first, and what a process touches stays near the largest sum of live blocks.
// Blocks of the smallest size, which hold scalars, are not joined at once but wait for the next such request; they join
// before more is taken from the system.
// Pages are huge ones where the system grants them. Under the address sanitizer every block is its own allocation, so
// that it sees what reaches beyond one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tally {

class Arena {
 public:
  // `bytes` is a multiple of the block rounding. Null when the system has no more.
  void* take(int64_t bytes);
  void give(void* block, int64_t bytes);
  // Gives the pages of all free pieces back to the system; the addresses stay.
  void release();

  int64_t free_bytes() const { return free_; }  // free and perhaps still backed by memory
  int64_t growths() const { return growths_; }  // how often more was taken from the system
#ifdef __SANITIZE_ADDRESS__
  static constexpr bool kReuses = false;
#else
  static constexpr bool kReuses = true;
#endif

 private:
  struct Piece {
    int64_t bytes;
    bool touched;  // may hold pages
  };
  using Pieces = std::map<int64_t, Piece>;  // by offset
  bool reserve();
  bool grow(int64_t bytes);
  void insert(int64_t offset, Piece piece);
  void erase(Pieces::iterator it);
  void join_small();

  char* base_ = nullptr;
  int64_t reserved_ = 0, usable_ = 0, free_ = 0, growths_ = 0;
  Pieces pieces_;
  std::set<std::pair<int64_t, int64_t>> by_size_;  // (bytes, offset)
  static constexpr int64_t kSmall = 256;
  static constexpr int64_t kMostSmall = 256;
  std::vector<int64_t> small_;  // offsets of free blocks of kSmall bytes, not in pieces_
};

}  // namespace tally
