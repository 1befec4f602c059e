// Words lie one after the other in one array of symbols and shrink in place; see bpe_train.h.
#include "tally/text/bpe_train.h"

#include <algorithm>
#include <limits>

#include "tally/base/error.h"
#include "tally/text/pair_map.h"
#include "tally/text/word_counts.h"

namespace tally {
namespace {

class Trainer {
 public:
  Trainer(std::span<const WordCount> words, BpeTie tie) : tie_(tie) {
    for (int b = 0; b < 256; ++b) {
      const char byte = static_cast<char>(b);
      trained_.tokens.push_back({&byte, 1});
    }
    add_words(words);
    for (uint32_t i = 0; i < pairs_.size(); ++i) push_heap(i);
  }

  BpeTrained run(int64_t max_merges) {
    while (static_cast<int64_t>(trained_.merges.size()) < max_merges) {
      const int64_t best = pop_best();
      if (best < 0) break;
      merge(static_cast<uint32_t>(best));
    }
    return std::move(trained_);
  }

 private:
  struct Word {
    size_t begin;  // in symbols_
    size_t length;
    int64_t count;
  };
  struct Pair {
    int32_t left, right;
    int64_t count;
    std::vector<uint32_t> words;  // ascending, each once; some may hold the pair no more
  };
  struct Candidate {
    int64_t count;
    uint32_t pair;
  };

  void add_words(std::span<const WordCount> words) {
    if (words.size() > std::numeric_limits<uint32_t>::max())
      fail("{} different words are more than the trainer can hold", words.size());
    size_t total = 0;
    for (const WordCount& w : words) total += w.word.size() > 1 ? w.word.size() : 0;
    symbols_.reserve(total);
    for (const WordCount& w : words) {
      if (w.word.size() < 2) continue;  // holds no pair
      const auto index = static_cast<uint32_t>(words_.size());
      words_.push_back({symbols_.size(), w.word.size(), w.count});
      for (const char c : w.word) symbols_.push_back(static_cast<unsigned char>(c));
      for (size_t i = 0; i + 1 < w.word.size(); ++i)
        count_up(symbols_[symbols_.size() - w.word.size() + i], symbols_[symbols_.size() - w.word.size() + i + 1],
                 index);
    }
  }

  Pair& pair_of(int32_t left, int32_t right) {
    const auto fresh = static_cast<uint32_t>(pairs_.size());
    const uint32_t i = index_.insert(pair_key(left, right), fresh);
    if (i == fresh) pairs_.push_back({left, right, 0, {}});
    return pairs_[i];
  }

  void count_up(int32_t left, int32_t right, uint32_t word) {
    Pair& pair = pair_of(left, right);
    pair.count += words_[word].count;
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
  }

  void count_down(int32_t left, int32_t right, uint32_t word) { pair_of(left, right).count -= words_[word].count; }

  // Does candidate a come after b? The order of std::push_heap: the greatest element is on top.
  bool before(const Candidate& a, const Candidate& b) const {
    if (a.count != b.count) return a.count < b.count;
    const Pair &x = pairs_[a.pair], &y = pairs_[b.pair];
    if (tie_ == BpeTie::kSmallestIds) return std::pair(x.left, x.right) > std::pair(y.left, y.right);
    const int order = trained_.tokens[x.left].compare(trained_.tokens[y.left]);
    return order != 0 ? order < 0 : trained_.tokens[x.right] < trained_.tokens[y.right];
  }

  void push_heap(uint32_t pair) {
    if (pairs_[pair].count <= 0) return;
    heap_.push_back({pairs_[pair].count, pair});
    std::push_heap(heap_.begin(), heap_.end(), [this](const auto& a, const auto& b) { return before(a, b); });
  }

  // The pair to merge, or -1 when none is left. Counts only fall after a pair's first merge round, so an entry with
  // the live count on top is the best of all.
  int64_t pop_best() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), [this](const auto& a, const auto& b) { return before(a, b); });
      const Candidate top = heap_.back();
      heap_.pop_back();
      if (pairs_[top.pair].count == top.count) return top.pair;
      push_heap(top.pair);
    }
    return -1;
  }

  void merge(uint32_t best) {
    const int32_t left = pairs_[best].left, right = pairs_[best].right;
    const int32_t token = trained_.tokens.size();
    if (token == std::numeric_limits<int32_t>::max()) fail("the vocabulary is larger than token ids can count");
    trained_.tokens.push_back(std::string(trained_.tokens[left]) + std::string(trained_.tokens[right]));
    trained_.merges.emplace_back(left, right);
    const auto first_new = static_cast<uint32_t>(pairs_.size());
    const std::vector<uint32_t> words = std::move(pairs_[best].words);
    for (const uint32_t word : words) merge_in_word(word, left, right, token);
    pairs_[best].words = {};
    for (uint32_t i = first_new; i < pairs_.size(); ++i) push_heap(i);
  }

  // Replaces left,right by token from left to right. Each replacement changes the counts as if it were alone:
  // the symbol before is already rewritten, the one after is not.
  void merge_in_word(uint32_t word, int32_t left, int32_t right, int32_t token) {
    Word& w = words_[word];
    int32_t* s = symbols_.data() + w.begin;
    size_t out = 0;
    for (size_t i = 0; i < w.length; ++out) {
      if (s[i] != left || i + 1 == w.length || s[i + 1] != right) {
        s[out] = s[i++];
        continue;
      }
      if (out > 0) {
        count_down(s[out - 1], left, word);
        count_up(s[out - 1], token, word);
      }
      count_down(left, right, word);
      if (i + 2 < w.length) {
        count_down(right, s[i + 2], word);
        count_up(token, s[i + 2], word);
      }
      s[out] = token;
      i += 2;
    }
    w.length = out;
  }

  BpeTie tie_;
  BpeTrained trained_;
  std::vector<int32_t> symbols_;
  std::vector<Word> words_;
  std::vector<Pair> pairs_;
  PairMap<uint32_t> index_;
  std::vector<Candidate> heap_;
};

}  // namespace

BpeTrained train_bpe(std::span<const std::string_view> texts, const SpecialSet& specials, int64_t max_merges,
                     BpeTie tie) {
  return Trainer(count_words(texts, specials), tie).run(max_merges);
}

}  // namespace tally
