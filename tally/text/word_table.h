// The two tables of the word counter. A word of up to 16 bytes is its own key; a longer one goes by its hash.
//   LocalWords  of one thread: 32-byte slots over a part of the text, small enough for the cache
//   SharedWords of all threads, one a shard: an index of 8-byte slots over 32-byte entries; long words in an arena
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include <xxhash.h>

namespace tally {

inline constexpr size_t kInlineWord = 16;

struct WordKey {
  uint64_t low, high;  // the bytes, zeros behind; or two hashes of a longer word
  bool operator==(const WordKey&) const = default;
};

// The bytes of a short word at `p`; up to 16 bytes from p are read when `end` allows it, and masked.
inline WordKey word_key(const char* p, size_t n, const char* end) {
  WordKey key{0, 0};
  if (n > kInlineWord) {
    const XXH128_hash_t hash = XXH3_128bits(p, n);
    return {hash.low64, hash.high64};
  }
  if (end - p < static_cast<ptrdiff_t>(kInlineWord)) {
    std::memcpy(&key, p, n);
    return key;
  }
  std::memcpy(&key, p, kInlineWord);
  const uint64_t low_mask = n >= 8 ? ~uint64_t{0} : ~(~uint64_t{0} << (8 * n));
  const uint64_t high_mask = n <= 8 ? 0 : ~uint64_t{0} >> (8 * (kInlineWord - n));
  return {key.low & low_mask, key.high & high_mask};
}

inline uint64_t word_hash(const WordKey& key, size_t length) {
  const auto product = static_cast<unsigned __int128>(key.low ^ 0x9E3779B97F4A7C15u) *
                       (key.high ^ (uint64_t{length} << 56) ^ 0xD6E8FEB86659FD93u);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

class LocalWords {
 public:
  static constexpr size_t kSlots = size_t{1} << 16;
  static constexpr size_t kFull = kSlots / 8 * 5;

  struct Slot {
    WordKey key;
    const char* at;   // the bytes, while the text is there
    uint32_t length;  // a part is shorter than 4 GiB, or is one word
    uint32_t count;   // 0: free
  };

  LocalWords() : slots_(kSlots) {}

  // The words that follow lie behind `begin`, which stands at `offset` of all that is counted.
  void begin_part(const char* begin, size_t offset) { shift_ = offset - reinterpret_cast<size_t>(begin); }

  // True when the table must be emptied before the next word.
  bool add(const char* at, size_t length, const char* end) {
    const WordKey key = word_key(at, length, end);
    const auto short_length = static_cast<uint32_t>(length);
    for (size_t i = word_hash(key, length) & (kSlots - 1);; i = (i + 1) & (kSlots - 1)) {
      Slot& slot = slots_[i];
      if (slot.count == 0) {
        slot = {key, at, short_length, 1};
        used_.push_back({i, reinterpret_cast<size_t>(at) + shift_});
        return used_.size() == kFull;
      }
      if (slot.key == key && slot.length == short_length &&
          (length <= kInlineWord || std::memcmp(slot.at, at, length) == 0))
        return ++slot.count == ~uint32_t{0};
    }
  }

  struct Used {
    size_t slot;
    uint64_t position;  // where the word was met first
  };
  const std::vector<Used>& used() const { return used_; }
  const Slot& operator[](const Used& used) const { return slots_[used.slot]; }

  void clear() {
    for (const Used& used : used_) slots_[used.slot] = Slot{};
    used_.clear();
  }

 private:
  std::vector<Slot> slots_;
  std::vector<Used> used_;
  size_t shift_ = 0;
};

class SharedWords {
 public:
  struct Entry {
    uint64_t key[2];     // the bytes of a short word, or {pointer, length}
    int64_t count;
    uint64_t first;      // position where it was met first << 8 | length, 255 for a long word

    std::string_view word() const {
      const size_t n = first & 0xFF;
      if (n <= kInlineWord) return {reinterpret_cast<const char*>(key), n};
      return {reinterpret_cast<const char*>(key[0]), key[1]};
    }
  };

  void prefetch(uint64_t hash) const {
    if (!index_.empty()) __builtin_prefetch(&index_[slot_of(hash)]);
  }

  void add(std::string_view word, const WordKey& key, uint64_t hash, int64_t count, uint64_t position) {
    if ((entries_.size() + 1) * 3 > index_.size() * 2) grow();
    const uint64_t tag = hash & kTag;
    const uint64_t first = position << 8 | std::min<size_t>(word.size(), 255);
    size_t i = slot_of(hash);
    for (; index_[i] != 0; i = (i + 1) & (index_.size() - 1)) {
      if ((index_[i] & kTag) != tag) continue;
      Entry& entry = entries_[(index_[i] >> 32) - 1];
      if (word.size() <= kInlineWord ? entry.key[0] == key.low && entry.key[1] == key.high &&
                                           (entry.first & 0xFF) == word.size()
                                     : entry.word() == word) {
        entry.count += count;
        entry.first = std::min(entry.first, first);
        return;
      }
    }
    if (word.size() <= kInlineWord)
      entries_.push_back({{key.low, key.high}, count, first});
    else
      entries_.push_back({{reinterpret_cast<uint64_t>(keep(word)), word.size()}, count, first | 255});
    index_[i] = uint64_t{entries_.size()} << 32 | tag;
  }

  const std::vector<Entry>& entries() const { return entries_; }
  size_t bytes() const {
    return index_.capacity() * sizeof(uint64_t) + entries_.capacity() * sizeof(Entry) + arena_bytes_;
  }
  void drop_index() { std::vector<uint64_t>().swap(index_); }

 private:
  static constexpr uint64_t kTag = 0xFFFFFFFFu;
  static constexpr size_t kBlock = size_t{1} << 16;

  // The tag's upper bits choose the slot, so that the index can grow without the words.
  size_t slot_of(uint64_t hash) const { return static_cast<size_t>((hash & kTag) >> shift_); }

  void grow() {
    std::vector<uint64_t> old(std::max<size_t>(64, index_.size() * 2), 0);
    old.swap(index_);
    shift_ = 32;
    for (size_t n = index_.size(); n > 1; n /= 2) --shift_;
    for (const uint64_t slot : old) {
      if (slot == 0) continue;
      size_t i = slot_of(slot);
      while (index_[i] != 0) i = (i + 1) & (index_.size() - 1);
      index_[i] = slot;
    }
  }

  const char* keep(std::string_view word) {
    if (word.size() > left_) {
      left_ = std::max(word.size(), kBlock);
      arena_.push_back(std::make_unique<char[]>(left_));
      free_ = arena_.back().get();
      arena_bytes_ += left_;
    }
    char* at = free_;
    std::memcpy(at, word.data(), word.size());
    free_ += word.size(), left_ -= word.size();
    return at;
  }

  std::vector<uint64_t> index_;  // entry + 1 << 32 | tag; 0: free
  int shift_ = 32;
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<char[]>> arena_;
  char* free_ = nullptr;
  size_t left_ = 0, arena_bytes_ = 0;
};

}  // namespace tally
