// Memory of a CUDA device for tensors: segments taken from the driver and cut as core/arena.h cuts the CPU's: the
// smallest free piece that holds a request (best fit), the rest given back, freed neighbours joined. Everything runs on
// the device's one stream, so a freed piece may be handed out while earlier work on it is still under way. Steps of
// equal shapes take nothing from the driver after the first.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace tally {

class Segments {
 public:
  explicit Segments(int device) : device_(device) {}
  // `bytes` is a multiple of the block rounding. Null when the device has no more.
  void* take(int64_t bytes);
  void give(void* block, int64_t bytes);
  void release();  // gives segments that are free as a whole back to the driver

  int64_t free_bytes() const { return free_; }
  int64_t reserved_bytes() const { return reserved_; }
  int64_t growths() const { return growths_; }

 private:
  struct Piece {
    int64_t bytes;
    char* segment;  // its segment's start: pieces of two segments are never joined
  };
  using Pieces = std::map<char*, Piece>;  // free ones, by address
  bool grow(int64_t bytes);
  void insert(char* at, Piece piece);
  void erase(Pieces::iterator it);

  int device_;
  int64_t free_ = 0, reserved_ = 0, growths_ = 0;
  Pieces pieces_;
  std::set<std::pair<int64_t, char*>> by_size_;
  std::map<char*, int64_t> segments_;  // start and bytes
};

}  // namespace tally
