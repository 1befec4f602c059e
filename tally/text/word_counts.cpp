// See word_counts.h. The tables are in word_table.h.
#include "tally/text/word_counts.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <mutex>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/text/word_table.h"

namespace tally {
namespace {

constexpr size_t kPartBytes = size_t{2} << 20;
constexpr size_t kShards = 64;
constexpr size_t kPrefetch = 8;  // words ahead

struct Shard {
  std::mutex mutex;
  std::shared_ptr<SharedWords> words = std::make_shared<SharedWords>();
};

std::string mebibytes(size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

struct WordCounter::State {
  Pattern pattern;
  SpecialSet specials;
  WordCounterOptions options;
  std::array<Shard, kShards> shards;
  std::atomic<size_t> table_bytes{0};
  size_t bytes_read = 0;

  std::mutex pool_mutex;
  std::vector<std::unique_ptr<LocalWords>> pool;  // as many as threads have worked at one time

  std::unique_ptr<LocalWords> take_local() {
    const std::lock_guard lock(pool_mutex);
    if (pool.empty()) return std::make_unique<LocalWords>();
    std::unique_ptr<LocalWords> local = std::move(pool.back());
    pool.pop_back();
    return local;
  }
  void give_local(std::unique_ptr<LocalWords> local) {
    const std::lock_guard lock(pool_mutex);
    pool.push_back(std::move(local));
  }

  // Adds a thread's words to the shards and empties its table.
  void empty_into_shards(LocalWords& local) {
    struct Word {
      const LocalWords::Slot* slot;
      uint64_t hash, position;
    };
    static_assert(kShards == 64, "the shard is the hash's upper 6 bits");
    std::array<size_t, kShards + 1> start{};
    std::vector<Word> words, sorted(local.used().size());
    words.reserve(local.used().size());
    for (const LocalWords::Used& used : local.used()) {
      const LocalWords::Slot& slot = local[used];
      words.push_back({&slot, word_hash(slot.key, slot.length), used.position});
      ++start[(words.back().hash >> 58) + 1];
    }
    for (size_t s = 0; s < kShards; ++s) start[s + 1] += start[s];
    std::array<size_t, kShards> at;
    std::copy_n(start.begin(), kShards, at.begin());
    for (const Word& w : words) sorted[at[w.hash >> 58]++] = w;
    const size_t turn = words.front().position / kPartBytes * 17;  // threads start at different shards
    for (size_t k = 0; k < kShards; ++k) {
      const size_t s = (k + turn) % kShards;
      if (start[s] == start[s + 1]) continue;
      const std::lock_guard lock(shards[s].mutex);
      SharedWords& shared = *shards[s].words;
      const size_t before = shared.bytes();
      for (size_t i = start[s]; i < start[s + 1]; ++i) {
        if (i + kPrefetch < start[s + 1]) shared.prefetch(sorted[i + kPrefetch].hash);
        const LocalWords::Slot& slot = *sorted[i].slot;
        shared.add({slot.at, slot.length}, slot.key, sorted[i].hash, slot.count, sorted[i].position);
      }
      table_bytes += shared.bytes() - before;
    }
    local.clear();
    check_memory();
  }

  void check_memory() {
    if (options.max_memory <= 0 || table_bytes <= static_cast<size_t>(options.max_memory)) return;
    fail("the different words met so far need {} of memory, more than the {} allowed: allow more, or train on less text",
         mebibytes(table_bytes), mebibytes(static_cast<size_t>(options.max_memory)));
  }

  void count_part(std::string_view part, size_t offset, LocalWords& local) {
    if (part.size() > std::numeric_limits<uint32_t>::max())
      fail("{} bytes of text without a place to cut are more than the trainer can hold (4 GiB)", part.size());
    local.begin_part(part.data(), offset);
    const char* const end = part.data() + part.size();
    for_each_segment(
        part, specials,
        [&](std::string_view text) {
          for_each_piece(pattern, text, [&](std::string_view w) {
            if (local.add(w.data(), w.size(), end)) empty_into_shards(local);
          });
        },
        [](int32_t) {});
  }

  // Small parts are counted together, up to kPartBytes by one thread.
  void count_parts(std::span<const std::string_view> parts) {
    struct Group {
      size_t begin, end, offset;
    };
    std::vector<Group> groups;
    size_t offset = bytes_read, size = kPartBytes;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (size + parts[i].size() > kPartBytes) groups.push_back({i, i, offset}), size = 0;
      groups.back().end = i + 1;
      size += parts[i].size(), offset += parts[i].size();
    }
    parallel_for(static_cast<int64_t>(groups.size()), 1, [&](int64_t first, int64_t last) {
      std::unique_ptr<LocalWords> local = take_local();
      for (int64_t g = first; g < last; ++g) {
        size_t at = groups[static_cast<size_t>(g)].offset;
        for (size_t i = groups[static_cast<size_t>(g)].begin; i < groups[static_cast<size_t>(g)].end; ++i) {
          count_part(parts[i], at, *local);
          at += parts[i].size();
        }
        if (!local->used().empty()) empty_into_shards(*local);
      }
      give_local(std::move(local));
    });
    bytes_read = offset;
    if (options.progress) options.progress("reading", static_cast<int64_t>(bytes_read), options.total_bytes);
  }
};

WordCounter::WordCounter(Pattern pattern, SpecialSet specials, WordCounterOptions options)
    : state_(std::make_unique<State>()) {
  state_->pattern = std::move(pattern);
  state_->specials = std::move(specials);
  state_->options = std::move(options);
}

WordCounter::~WordCounter() = default;

int64_t WordCounter::bytes_read() const { return static_cast<int64_t>(state_->bytes_read); }

void WordCounter::add(std::span<const std::string_view> texts) {
  std::vector<std::string_view> parts;
  for (const std::string_view text : texts)
    for (const std::string_view part : cut_text(text, state_->specials, kPartBytes, state_->pattern)) parts.push_back(part);
  state_->count_parts(parts);
}

// What follows the last safe border of a block is carried over to the next one. A border is safe only when no special
// token can lie across it: one that does begins less than its length before it, so it ends within the block when the
// block goes on for as much behind the border.
void WordCounter::add(FileReader& file) {
  const size_t step = kPartBytes * 4 * static_cast<size_t>(std::min(num_threads(), 32));
  size_t wanted = step;
  if (file.size() >= 0) wanted = std::min(wanted, static_cast<size_t>(file.size()) + 1);
  const size_t margin = std::max<size_t>(1, state_->specials.longest());
  std::vector<char> block;
  size_t held = 0;
  for (bool at_end = false; !at_end;) {
    block.resize(std::max(block.size(), held + wanted));
    const size_t room = block.size() - held, got = file.read(block.data() + held, room);
    at_end = got < room;
    const std::string_view text(block.data(), held + got);
    std::vector<std::string_view> parts = cut_text(text, state_->specials, kPartBytes, state_->pattern);
    if (!at_end) {
      const char* const last = text.data() + (text.size() - std::min(text.size(), margin));
      while (!parts.empty() && parts.back().data() + parts.back().size() > last) parts.pop_back();
    }
    const size_t counted = parts.empty() ? 0 : static_cast<size_t>(parts.back().data() + parts.back().size() - text.data());
    state_->count_parts(parts);
    held = text.size() - counted;
    std::copy_n(text.data() + counted, held, block.data());
    wanted = std::max(step, held);  // a text without borders grows the block twofold
  }
}

WordList WordCounter::take(WordOrder order) {
  WordList list;
  std::vector<std::pair<uint64_t, uint32_t>> by_place;
  size_t n = 0;
  for (Shard& shard : state_->shards) {
    shard.words->drop_index();
    n += shard.words->entries().size();
  }
  list.words.reserve(n);
  if (order == WordOrder::kFirstMet) by_place.reserve(n);
  for (Shard& shard : state_->shards) {
    for (const SharedWords::Entry& entry : shard.words->entries()) {
      if (order == WordOrder::kFirstMet) by_place.emplace_back(entry.first, static_cast<uint32_t>(list.words.size()));
      list.words.push_back({entry.word(), entry.count});
    }
    list.storage.push_back(shard.words);
    shard.words = std::make_shared<SharedWords>();
  }
  state_->table_bytes = 0, state_->bytes_read = 0;
  if (order == WordOrder::kBytes)
    std::sort(list.words.begin(), list.words.end(),
              [](const WordCount& a, const WordCount& b) { return a.word < b.word; });
  if (order == WordOrder::kFirstMet) {
    if (n > std::numeric_limits<uint32_t>::max()) fail("{} different words are more than the trainer can hold", n);
    std::sort(by_place.begin(), by_place.end());
    std::vector<WordCount> sorted;
    sorted.reserve(n);
    for (const auto& [place, word] : by_place) sorted.push_back(list.words[word]);
    list.words = std::move(sorted);
  }
  return list;
}

WordList count_words(std::span<const std::string_view> texts, const SpecialSet& specials, const Pattern& pattern) {
  WordCounter counter(pattern, specials);
  counter.add(texts);
  return counter.take(WordOrder::kBytes);
}

}  // namespace tally
