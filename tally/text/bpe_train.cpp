// The distinct words lie one after the other in one array of slots, a slot a byte:
//   [count, 8 bytes] [edge] symbols [edge]
// A token of n bytes takes n slots and writes its id into the first and the last; what a merge leaves inside a token
// is never read as a token again, so both neighbours of a token are one look-up away and nothing moves. A pair's list
// holds the slots where it stood when the list was made, ascending; one that is stale no longer reads left, right.
// New pairs come about only in the merge that makes their newer token, so each merge writes their lists in one block,
// sorted by the other token: a pair is found by binary search in the block of its newer token, without a hash table.
#include "tally/text/bpe_train.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>

#include "tally/base/error.h"
#include "tally/base/parallel.h"

namespace tally {
namespace {

constexpr size_t kBytePairs = size_t{256} * 256;
constexpr size_t kChunkWords = size_t{1} << 17;
constexpr size_t kWalk = 256;    // slots that are searched for a word's edge before the list of long words is asked
constexpr size_t kPrefetch = 16;  // places ahead
constexpr uint32_t kNone = ~uint32_t{0};

// Order of the tie rule between two pairs, as the ids of a vocabulary or the bytes of tokens say.
class TieOrder {
 public:
  TieOrder(BpeTie tie, const TokenTable& tokens) : tie_(tie), tokens_(&tokens) {
    const std::vector<uint8_t>& order = printable_byte_order();
    for (size_t i = 0; i < 256; ++i) rank_[tie == BpeTie::kSmallestIds ? order[i] : i] = static_cast<uint32_t>(i);
  }
  // Is (a, b) merged before (c, d) when both stand equally often?
  bool first(uint32_t a, uint32_t b, uint32_t c, uint32_t d) const {
    if (tie_ == BpeTie::kGreatestBytes) {
      const int order = a == c ? 0 : token(a).compare(token(c));
      return order != 0 ? order > 0 : token(b) > token(d);
    }
    return std::pair(rank(a), rank(b)) < std::pair(rank(c), rank(d));
  }

 private:
  std::string_view token(uint32_t id) const { return (*tokens_)[static_cast<int32_t>(id)]; }
  uint32_t rank(uint32_t id) const { return id < 256 ? rank_[id] : id; }

  BpeTie tie_;
  const TokenTable* tokens_;
  std::array<uint32_t, 256> rank_;
};

// Symbol: uint16_t when all ids fit, which halves the memory, else uint32_t.
template <class Symbol>
class Trainer {
 public:
  Trainer(const BpeTrainOptions& options)
      : options_(options), least_(std::max<int64_t>(1, options.min_frequency)), order_(options.tie, trained_.tokens) {
    for (int b = 0; b < 256; ++b) {
      const char byte = static_cast<char>(b);
      trained_.tokens.push_back({&byte, 1});
      length_.push_back(1);
    }
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  BpeTrained run(WordList list) {
    add_words(list.words);
    list = {};
    add_byte_pairs();
    while (static_cast<int64_t>(trained_.merges.size()) < options_.max_merges) {
      const uint32_t best = pop_best();
      if (best == kNone) break;
      merge(best);
      check_memory();
      if (options_.progress && trained_.merges.size() % 64 == 0)
        options_.progress("merging", static_cast<int64_t>(trained_.merges.size()), options_.max_merges);
    }
    return std::move(trained_);
  }

 private:
  static constexpr Symbol kEdge = std::numeric_limits<Symbol>::max();
  static constexpr Symbol kHole = kEdge - 1;
  static constexpr size_t kCountSlots = sizeof(int64_t) / sizeof(Symbol);
  static constexpr size_t kExtra = kCountSlots + 2;  // slots of a word besides its symbols

  struct Pair {
    int64_t count;
    uint32_t left, right;
    uint32_t begin, size;  // its list, in the block of its newer token
  };
  struct Candidate {
    int64_t count;
    uint32_t pair;
    uint32_t place;  // where the pair stands first (kFirstSeen)
  };
  struct LongWord {
    size_t begin = 0, end = 0;  // slots, [begin, end)
    int64_t count = 0;
  };
  // Pairs whose newer token is one: [first, middle) has it on the right, [middle, last) on the left or on both sides.
  struct Block {
    uint32_t first = 0, middle = 0, last = 0;
    std::unique_ptr<uint32_t[]> places;
  };
  // The neighbours on one side of the places of a merge.
  struct Side {
    struct Sum {
      int64_t weight = 0;
      uint32_t places = 0, at = 0;
    };
    std::vector<Sum> by_token;
    std::vector<uint32_t> met;
    std::vector<std::pair<uint32_t, uint32_t>> places;  // neighbour, where the new pair stands

    void add(uint32_t neighbour, uint32_t place, int64_t weight) {
      Sum& sum = by_token[neighbour];
      if (sum.places++ == 0) met.push_back(neighbour);
      sum.weight += weight;
      places.emplace_back(neighbour, place);
    }
    void clear() {
      for (const uint32_t token : met) by_token[token] = Sum{};
      met.clear(), places.clear();
    }
  };

  // --- words ---

  void add_words(std::span<const WordCount> words) {
    size_t slots = 1;
    __int128 occurrences = 0;
    chunk_slots_ = {0};
    for (size_t i = 0; i < words.size(); ++i) {
      const WordCount& w = words[i];
      if (w.count < 0) fail("a word has the count {}; counts are not negative", w.count);
      if (i % kChunkWords == 0 && i > 0) chunk_slots_.push_back(slots);
      if (!holds_pair(w)) continue;
      slots += w.word.size() + kExtra;
      occurrences += static_cast<__int128>(w.count) * static_cast<int64_t>(w.word.size());
      if (w.word.size() > kWalk) long_words_.push_back({slots - 1 - w.word.size(), slots - 1, w.count});
    }
    if (slots > std::numeric_limits<uint32_t>::max())
      fail("the different words take {} bytes, more than the trainer can hold (4 GiB): train on less text", slots);
    if (occurrences > std::numeric_limits<int64_t>::max()) fail("the counts of the words are beyond 64 bits");
    chunk_slots_.push_back(slots);
    symbols_ = std::make_unique_for_overwrite<Symbol[]>(slots);
    bytes_ = slots * sizeof(Symbol);
    check_memory();
    symbols_[0] = kEdge;
    chunk_slots_[0] = 1;
    parallel_for(static_cast<int64_t>(chunk_slots_.size() - 1), 1, [&](int64_t begin, int64_t end) {
      for (auto c = static_cast<size_t>(begin); c < static_cast<size_t>(end); ++c) {
        Symbol* out = symbols_.get() + chunk_slots_[c];
        const size_t first = std::min(c * kChunkWords, words.size());
        for (const WordCount& w : words.subspan(first, std::min(kChunkWords, words.size() - first))) {
          if (!holds_pair(w)) continue;
          std::memcpy(out, &w.count, sizeof(w.count));
          out += kCountSlots;
          *out++ = kEdge;
          for (const char ch : w.word) *out++ = static_cast<unsigned char>(ch);
          *out++ = kEdge;
        }
      }
    });
  }

  static bool holds_pair(const WordCount& w) { return w.word.size() > 1 && w.count > 0; }

  // `near`: the long word that was met last.
  int64_t count_at(uint32_t place, LongWord& near) const {
    if (place >= near.begin && place < near.end) return near.count;
    const Symbol* s = symbols_.get() + place;
    const Symbol* const stop = s - std::min<size_t>(place, kWalk + 1);
    while (s > stop && *s != kEdge) --s;
    if (*s != kEdge) {
      near = *std::upper_bound(long_words_.begin(), long_words_.end(), size_t{place},
                               [](size_t at, const LongWord& w) { return at < w.end; });
      return near.count;
    }
    int64_t count;
    std::memcpy(&count, s - kCountSlots, sizeof(count));
    return count;
  }

  // Calls f(slot, left, right, count) for each two bytes that stand together in the words of a chunk.
  template <class F>
  void for_each_byte_pair(size_t chunk, const F& f) const {
    for (size_t at = chunk_slots_[chunk]; at < chunk_slots_[chunk + 1];) {
      int64_t count;
      std::memcpy(&count, &symbols_[at], sizeof(count));
      at += kCountSlots + 1;
      for (; symbols_[at + 1] != kEdge; ++at) f(at, symbols_[at], symbols_[at + 1], count);
      at += 2;
    }
  }

  void add_byte_pairs() {
    const size_t chunks = chunk_slots_.size() - 1;
    struct Counts {
      std::vector<int64_t> weight = std::vector<int64_t>(kBytePairs);
      std::vector<uint32_t> places = std::vector<uint32_t>(kBytePairs);
    };
    std::vector<Counts> counts(chunks);
    parallel_for(static_cast<int64_t>(chunks), 1, [&](int64_t begin, int64_t end) {
      for (auto c = static_cast<size_t>(begin); c < static_cast<size_t>(end); ++c)
        for_each_byte_pair(c, [&of = counts[c]](size_t, Symbol left, Symbol right, int64_t count) {
          of.weight[size_t{left} * 256 + right] += count;
          ++of.places[size_t{left} * 256 + right];
        });
    });
    byte_pairs_.assign(kBytePairs, kNone);
    byte_places_.resize(kBytePairs);
    for (size_t p = 0; p < kBytePairs; ++p) {
      int64_t weight = 0;
      uint32_t size = 0;
      for (Counts& of : counts) {
        weight += of.weight[p];
        const uint32_t n = of.places[p];
        of.places[p] = size, size += n;  // from here on: where the chunk's places begin in the list
      }
      if (size == 0 || weight < least_ || too_long(2)) continue;
      byte_pairs_[p] = static_cast<uint32_t>(pairs_.size());
      byte_places_[p] = std::make_unique_for_overwrite<uint32_t[]>(size);
      bytes_ += size * sizeof(uint32_t);
      pairs_.push_back({weight, static_cast<uint32_t>(p / 256), static_cast<uint32_t>(p % 256), 0, size});
    }
    check_memory();
    parallel_for(static_cast<int64_t>(chunks), 1, [&](int64_t begin, int64_t end) {
      for (auto c = static_cast<size_t>(begin); c < static_cast<size_t>(end); ++c)
        for_each_byte_pair(c, [&, &of = counts[c]](size_t at, Symbol left, Symbol right, int64_t) {
          const size_t p = size_t{left} * 256 + right;
          if (byte_places_[p] != nullptr) byte_places_[p][of.places[p]++] = static_cast<uint32_t>(at);
        });
    });
    for (uint32_t i = 0; i < pairs_.size(); ++i) heap_.push_back({pairs_[i].count, i, places(pairs_[i])[0]});
    std::make_heap(heap_.begin(), heap_.end(), [this](const auto& a, const auto& b) { return before(a, b); });
  }

  // --- pairs ---

  const uint32_t* places(const Pair& pair) const {
    const uint32_t newer = std::max(pair.left, pair.right);
    return newer < 256 ? byte_places_[pair.left * 256 + pair.right].get() + pair.begin
                       : blocks_[newer - 256].places.get() + pair.begin;
  }

  bool too_long(int64_t bytes) const { return options_.max_token_bytes > 0 && bytes > options_.max_token_bytes; }

  // Lowers a pair's count; a pair that can never be merged is not there.
  void lower(uint32_t left, uint32_t right, int64_t weight) {
    uint32_t found = kNone;
    if (left < 256 && right < 256) {
      found = byte_pairs_[left * 256 + right];
    } else {
      const Block& block = blocks_[std::max(left, right) - 256];
      const bool on_left = left >= right;
      const auto begin = pairs_.begin() + (on_left ? block.middle : block.first);
      const auto end = pairs_.begin() + (on_left ? block.last : block.middle);
      const auto at = std::lower_bound(begin, end, on_left ? right : left, [on_left](const Pair& p, uint32_t other) {
        return (on_left ? p.right : p.left) < other;
      });
      if (at != end && at->left == left && at->right == right) found = static_cast<uint32_t>(at - pairs_.begin());
    }
    if (found != kNone) pairs_[found].count -= weight;
  }

  // Does candidate a come after b? The order of std::push_heap: the greatest element is on top.
  bool before(const Candidate& a, const Candidate& b) const {
    if (a.count != b.count) return a.count < b.count;
    if (options_.tie == BpeTie::kFirstSeen) return a.place > b.place;
    const Pair &x = pairs_[a.pair], &y = pairs_[b.pair];
    return order_.first(y.left, y.right, x.left, x.right);
  }

  void push_heap(uint32_t i) {
    if (pairs_[i].count < least_) return;
    heap_.push_back({pairs_[i].count, i, options_.tie == BpeTie::kFirstSeen ? first_place(pairs_[i]) : 0});
    std::push_heap(heap_.begin(), heap_.end(), [this](const auto& a, const auto& b) { return before(a, b); });
  }

  bool stands_at(uint32_t place, const Pair& pair) const {
    return symbols_[place] == pair.left && symbols_[place + length_[pair.left]] == pair.right;
  }

  // Where a pair with a count above 0 stands first; what lies before it in the list is dropped.
  uint32_t first_place(Pair& pair) {
    const uint32_t* list = places(pair);
    uint32_t i = 0;
    while (!stands_at(list[i], pair)) ++i;
    pair.begin += i, pair.size -= i;
    return list[i];
  }

  // The pair to merge, or kNone. Counts only fall and first places only rise, so a stale entry stands too high.
  uint32_t pop_best() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), [this](const auto& a, const auto& b) { return before(a, b); });
      const Candidate top = heap_.back();
      heap_.pop_back();
      Pair& pair = pairs_[top.pair];
      const bool counted = pair.count == top.count;
      if (counted && (options_.tie != BpeTie::kFirstSeen || first_place(pair) == top.place)) return top.pair;
      push_heap(top.pair);
    }
    return kNone;
  }

  // --- merging ---

  void merge(uint32_t best) {
    const Pair pair = pairs_[best];
    const auto token = static_cast<uint32_t>(trained_.tokens.size());
    trained_.tokens.push_back(std::string(trained_.tokens[static_cast<int32_t>(pair.left)]) +
                              std::string(trained_.tokens[static_cast<int32_t>(pair.right)]));
    trained_.merges.emplace_back(pair.left, pair.right);
    length_.push_back(length_[pair.left] + length_[pair.right]);
    left_.by_token.resize(token + 1), right_.by_token.resize(token + 1);
    replace(pair, token);
    if (pair.left < 256 && pair.right < 256) {
      byte_places_[pair.left * 256 + pair.right].reset();
      bytes_ -= pair.size * sizeof(uint32_t);
    }
    add_block(pair, token);
    pairs_[best].count = 0;
    pairs_[best].size = 0;
  }

  // Writes the new token wherever the pair stands, from left to right, and sums what stood and stands beside it.
  void replace(const Pair& pair, uint32_t token) {
    const uint32_t to_right = length_[pair.left], to_next = to_right + length_[pair.right];
    const uint32_t* list = places(pair);
    Symbol* const s = symbols_.get();
    LongWord near;
    for (uint32_t i = 0; i < pair.size; ++i) {
      if (i + kPrefetch < pair.size) __builtin_prefetch(s + list[i + kPrefetch]);
      const uint32_t at = list[i];
      if (s[at] != pair.left || s[at + to_right] != pair.right) continue;
      const int64_t count = count_at(at, near);
      const uint32_t previous = s[at - 1], next = s[at + to_next];
      s[at + to_right] = kHole;
      s[at] = s[at + to_next - 1] = static_cast<Symbol>(token);
      if (previous == token)  // the place before was merged just now: what stood between was right, left
        right_.add(token, at - to_next, count);
      else if (previous != kEdge)
        left_.add(previous, at - length_[previous], count);
      if (next != kEdge && !(next == pair.left && s[at + to_next + to_right] == pair.right)) right_.add(next, at, count);
    }
  }

  void add_block(const Pair& pair, uint32_t token) {
    Block& block = blocks_.emplace_back();
    const size_t n = left_.places.size() + right_.places.size();
    uint32_t room = 0;
    block.first = static_cast<uint32_t>(pairs_.size());
    std::sort(left_.met.begin(), left_.met.end());
    std::sort(right_.met.begin(), right_.met.end());
    for (const uint32_t other : left_.met) {
      lower(other, pair.left, left_.by_token[other].weight);
      add_pair(left_.by_token[other], other, token, room);
    }
    block.middle = static_cast<uint32_t>(pairs_.size());
    for (const uint32_t other : right_.met) {
      lower(pair.right, other == token ? pair.left : other, right_.by_token[other].weight);
      add_pair(right_.by_token[other], token, other, room);
    }
    block.last = static_cast<uint32_t>(pairs_.size());
    if (pairs_.size() + n > kNone) fail("more different pairs than the trainer can hold");
    block.places = std::make_unique_for_overwrite<uint32_t[]>(room);
    bytes_ += room * sizeof(uint32_t);
    for (Side* side : {&left_, &right_}) {
      for (const auto& [other, place] : side->places) {
        typename Side::Sum& sum = side->by_token[other];
        if (sum.at != kNone) block.places[sum.at++] = place;
      }
      side->clear();
    }
    for (uint32_t i = block.first; i < block.last; ++i) push_heap(i);
  }

  void add_pair(typename Side::Sum& sum, uint32_t left, uint32_t right, uint32_t& room) {
    if (sum.weight < least_ || too_long(int64_t{length_[left]} + length_[right])) {
      sum.at = kNone;
      return;
    }
    pairs_.push_back({sum.weight, left, right, room, sum.places});
    sum.at = room, room += sum.places;
  }

  void check_memory() const {
    const size_t bytes = bytes_ + pairs_.capacity() * sizeof(Pair) + heap_.capacity() * sizeof(Candidate);
    if (options_.max_memory > 0 && bytes > static_cast<size_t>(options_.max_memory))
      fail("training needs more than the {:.1f} MiB of memory allowed ({:.1f} MiB after {} merges): allow more, raise the "
           "minimum frequency, or train on less text",
           static_cast<double>(options_.max_memory) / (1 << 20), static_cast<double>(bytes) / (1 << 20),
           trained_.merges.size());
  }

  const BpeTrainOptions& options_;
  const int64_t least_;  // counts below it are never merged
  BpeTrained trained_;
  TieOrder order_;
  std::vector<uint32_t> length_;  // bytes by token
  std::unique_ptr<Symbol[]> symbols_;
  std::vector<size_t> chunk_slots_;  // where each chunk of words begins, and the end
  std::vector<LongWord> long_words_;
  std::vector<uint32_t> byte_pairs_;                       // index in pairs_ by left * 256 + right
  std::vector<std::unique_ptr<uint32_t[]>> byte_places_;  // their lists
  std::vector<Block> blocks_;                              // by token - 256
  std::vector<Pair> pairs_;
  std::vector<Candidate> heap_;
  Side left_, right_;
  size_t bytes_ = 0;  // of symbols and lists
};

constexpr std::array<std::pair<const char*, BpeTie>, 4> kTies = {{{"greatest-bytes", BpeTie::kGreatestBytes},
                                                                  {"smallest-ids", BpeTie::kSmallestIds},
                                                                  {"first-seen", BpeTie::kFirstSeen},
                                                                  {"smallest-byte-ids", BpeTie::kSmallestByteIds}}};

}  // namespace

const char* bpe_tie_name(BpeTie tie) {
  for (const auto& [name, value] : kTies)
    if (value == tie) return name;
  return "?";
}

BpeTie parse_bpe_tie(std::string_view name) {
  for (const auto& [known, value] : kTies)
    if (name == known) return value;
  fail("tie rule \"{}\" is not known; there are greatest-bytes, smallest-ids, first-seen and smallest-byte-ids", name);
}

BpeTrained train_bpe(WordList words, const BpeTrainOptions& options) {
  constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
  if (options.max_merges > kMostTokens - 256) fail("the vocabulary is larger than token ids can count");
  if (256 + options.max_merges < std::numeric_limits<uint16_t>::max() - 1)
    return Trainer<uint16_t>(options).run(std::move(words));
  return Trainer<uint32_t>(options).run(std::move(words));
}

BpeTrained train_bpe(std::span<const std::string_view> texts, const SpecialSet& specials, int64_t max_merges,
                     BpeTie tie) {
  WordCounter counter(Pattern(), specials);
  counter.add(texts);
  BpeTrainOptions options;
  options.max_merges = max_merges, options.tie = tie;
  return train_bpe(counter.take(word_order(tie)), options);
}

}  // namespace tally
