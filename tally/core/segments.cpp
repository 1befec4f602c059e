#include "tally/core/segments.h"

#include "tally/core/device.h"

namespace tally {

namespace {
// A segment holds many small blocks or one large one; the driver's own pages are 2 MiB.
constexpr int64_t kPage = int64_t{2} << 20, kSegment = int64_t{32} << 20;
}  // namespace

void Segments::insert(char* at, Piece piece) {
  pieces_.emplace(at, piece);
  by_size_.emplace(piece.bytes, at);
  free_ += piece.bytes;
}

void Segments::erase(Pieces::iterator it) {
  by_size_.erase({it->second.bytes, it->first});
  free_ -= it->second.bytes;
  pieces_.erase(it);
}

bool Segments::grow(int64_t bytes) {
  const int64_t wanted = bytes < kSegment ? kSegment : (bytes + kPage - 1) / kPage * kPage;
  for (const int64_t size : {wanted, (bytes + kPage - 1) / kPage * kPage}) {
    auto* const start = static_cast<char*>(detail::device_take(device_, size));
    if (start == nullptr) continue;
    segments_.emplace(start, size);
    reserved_ += size;
    ++growths_;
    insert(start, {size, start});
    return true;
  }
  return false;
}

void* Segments::take(int64_t bytes) {
  auto found = by_size_.lower_bound({bytes, nullptr});
  if (found == by_size_.end()) {
    if (!grow(bytes)) {
      release();
      if (!grow(bytes)) return nullptr;
    }
    found = by_size_.lower_bound({bytes, nullptr});
  }
  const auto it = pieces_.find(found->second);
  char* const at = it->first;
  const Piece piece = it->second;
  erase(it);
  if (piece.bytes > bytes) insert(at + bytes, {piece.bytes - bytes, piece.segment});
  return at;
}

void Segments::give(void* block, int64_t bytes) {
  auto* at = static_cast<char*>(block);
  auto after = segments_.upper_bound(at);
  Piece piece{bytes, std::prev(after)->first};
  auto next = pieces_.lower_bound(at);
  if (next != pieces_.end() && next->first == at + bytes && next->second.segment == piece.segment) {
    piece.bytes += next->second.bytes;
    erase(next);
  }
  auto before = pieces_.lower_bound(at);
  if (before != pieces_.begin()) {
    --before;
    if (before->first + before->second.bytes == at && before->second.segment == piece.segment) {
      at = before->first;
      piece.bytes += before->second.bytes;
      erase(before);
    }
  }
  insert(at, piece);
}

void Segments::release() {
  for (auto it = segments_.begin(); it != segments_.end();) {
    const auto piece = pieces_.find(it->first);
    if (piece == pieces_.end() || piece->second.bytes != it->second) {
      ++it;
      continue;
    }
    erase(piece);
    detail::device_give(device_, it->first);
    reserved_ -= it->second;
    it = segments_.erase(it);
  }
}

}  // namespace tally
