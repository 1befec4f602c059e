// Texts are cut into parts at safe borders; a part is counted into a table of its own, which is then added to one of
// kShards common tables by the word's hash. Sums do not depend on order, and the sorted list not on the tables.
#include "tally/text/word_counts.h"

#include <algorithm>
#include <array>
#include <mutex>

#include <xxhash.h>

#include "tally/base/parallel.h"
#include "tally/text/pattern.h"

namespace tally {
namespace {

constexpr size_t kPartBytes = size_t{1} << 20;
constexpr size_t kShards = 64;

class WordTable {
 public:
  void add(std::string_view word, uint64_t hash, int64_t count) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    Slot* slot = find(word, hash);
    if (slot->word.empty()) {
      *slot = {word, hash, 0};
      ++size_;
    }
    slot->count += count;
  }

  template <class F>
  void for_each(const F& f) const {
    for (const Slot& slot : slots_)
      if (!slot.word.empty()) f(slot.word, slot.hash, slot.count);
  }

 private:
  struct Slot {
    std::string_view word;  // empty: free
    uint64_t hash = 0;
    int64_t count = 0;
  };

  Slot* find(std::string_view word, uint64_t hash) {
    const size_t mask = slots_.size() - 1;
    size_t i = hash & mask;
    while (!slots_[i].word.empty() && (slots_[i].hash != hash || slots_[i].word != word)) i = (i + 1) & mask;
    return &slots_[i];
  }

  void grow() {
    std::vector<Slot> old(std::max<size_t>(64, slots_.size() * 2));
    old.swap(slots_);
    for (const Slot& slot : old)
      if (!slot.word.empty()) *find(slot.word, slot.hash) = slot;
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

struct Shard {
  std::mutex mutex;
  WordTable table;
};

void count_part(std::string_view part, const SpecialSet& specials, std::array<Shard, kShards>& shards) {
  WordTable table;
  for_each_segment(
      part, specials,
      [&table](std::string_view text) {
        for_each_piece(Pattern(), text, [&table](std::string_view w) { table.add(w, XXH3_64bits(w.data(), w.size()), 1); });
      },
      [](int32_t) {});
  std::array<std::vector<std::pair<WordCount, uint64_t>>, kShards> sorted;
  table.for_each([&sorted](std::string_view word, uint64_t hash, int64_t count) {
    sorted[hash >> 58].push_back({{word, count}, hash});
  });
  for (size_t s = 0; s < kShards; ++s) {
    if (sorted[s].empty()) continue;
    const std::lock_guard lock(shards[s].mutex);
    for (const auto& [word, hash] : sorted[s]) shards[s].table.add(word.word, hash, word.count);
  }
}

}  // namespace

std::vector<WordCount> count_words(std::span<const std::string_view> texts, const SpecialSet& specials) {
  static_assert(kShards == 64, "the shard is the hash's upper 6 bits");
  std::vector<std::string_view> parts;
  for (const std::string_view text : texts)
    for (const std::string_view part : cut_text(text, specials, kPartBytes)) parts.push_back(part);
  std::array<Shard, kShards> shards;
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) count_part(parts[static_cast<size_t>(i)], specials, shards);
  });
  std::vector<WordCount> words;
  for (const Shard& shard : shards)
    shard.table.for_each([&words](std::string_view word, uint64_t, int64_t count) { words.push_back({word, count}); });
  std::sort(words.begin(), words.end(), [](const WordCount& a, const WordCount& b) { return a.word < b.word; });
  return words;
}

}  // namespace tally
