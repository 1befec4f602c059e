// Trainer and encoder against naive ones that follow the definition, on every small input and on random ones.
#include "tally/text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tally/base/parallel.h"
#include "tally/base/rng.h"
#include "tally/text/bpe_train.h"
#include "tally/text/pattern.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;
using Merges = std::vector<std::pair<int32_t, int32_t>>;

// The definition: count all pairs anew before each merge.
Merges naive_train(const std::string& text, int64_t max_merges, BpeTie tie) {
  std::vector<Ids> words;
  for_each_piece(Pattern(), text, [&words](std::string_view piece) {
    words.emplace_back();
    for (const char c : piece) words.back().push_back(static_cast<unsigned char>(c));
  });
  std::vector<std::string> bytes(256);
  for (size_t b = 0; b < 256; ++b) bytes[b] = static_cast<char>(b);
  Merges merges;
  while (static_cast<int64_t>(merges.size()) < max_merges) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const Ids& w : words)
      for (size_t i = 0; i + 1 < w.size(); ++i) ++counts[{w[i], w[i + 1]}];
    if (counts.empty()) break;
    const auto text_of = [&bytes](const auto& p) {
      return std::pair(bytes[static_cast<size_t>(p.first)], bytes[static_cast<size_t>(p.second)]);
    };
    auto best = counts.begin();
    for (auto it = counts.begin(); it != counts.end(); ++it) {
      const bool wins =
          tie == BpeTie::kSmallestByteIds ? it->first < best->first : text_of(it->first) > text_of(best->first);
      if (it->second > best->second || (it->second == best->second && wins)) best = it;
    }
    const auto [left, right] = best->first;
    for (Ids& w : words) {
      Ids merged;
      for (size_t i = 0; i < w.size(); ++i) {
        const bool here = w[i] == left && i + 1 < w.size() && w[i + 1] == right;
        merged.push_back(here ? static_cast<int32_t>(bytes.size()) : w[i]);
        i += here;
      }
      w = merged;
    }
    merges.emplace_back(left, right);
    bytes.push_back(bytes[static_cast<size_t>(left)] + bytes[static_cast<size_t>(right)]);
  }
  return merges;
}

Merges trained(const std::string& text, int64_t max_merges, BpeTie tie = BpeTie::kGreatestBytes) {
  const std::string_view view(text);
  return train_bpe({&view, 1}, {}, max_merges, tie).merges;
}

std::string random_text(uint64_t seed, size_t n, std::string_view alphabet) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += alphabet[random_below(seed, 0, i, alphabet.size())];
  return text;
}

// Calls f with every text of 1 to `longest` letters of the alphabet.
template <class F>
void for_each_text(std::string_view alphabet, size_t longest, const F& f, const std::string& prefix = "") {
  if (!prefix.empty()) f(prefix);
  if (prefix.size() == longest) return;
  for (const char c : alphabet) for_each_text(alphabet, longest, f, prefix + c);
}

TEST(BpeTrain, EveryShortTextEqualsTheDefinition) {
  for (const BpeTie tie : {BpeTie::kGreatestBytes, BpeTie::kSmallestByteIds}) {
    for_each_text("ab", 10,
                  [tie](const std::string& t) { ASSERT_EQ(trained(t, 20, tie), naive_train(t, 20, tie)) << t; });
    for_each_text("abc ", 6,
                  [tie](const std::string& t) { ASSERT_EQ(trained(t, 9, tie), naive_train(t, 9, tie)) << t; });
  }
}

TEST(BpeTrain, RandomTextsEqualTheDefinition) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::string text = random_text(seed, 400, seed % 2 == 0 ? "aab bc\n" : "abcdefg  '1\xC3\xA9");
    ASSERT_EQ(trained(text, 60), naive_train(text, 60, BpeTie::kGreatestBytes)) << seed;
    ASSERT_EQ(trained(text, 60, BpeTie::kSmallestByteIds), naive_train(text, 60, BpeTie::kSmallestByteIds)) << seed;
  }
}

// CS336's handout (case C08): its words stand one a line, so that the white space holds no pair.
TEST(BpeTrain, HandoutExampleMergesInOrder) {
  std::string text;
  for (const auto& [word, n] :
       std::vector<std::pair<std::string, int>>{{"low", 5}, {"lower", 2}, {"widest", 3}, {"newest", 6}})
    for (int i = 0; i < n; ++i) text += word + "\n";
  const std::string_view view(text);
  const BpeTrained result = train_bpe({&view, 1}, {}, 12);
  std::vector<std::string> merges;
  for (const auto& [a, b] : result.merges)
    merges.push_back(std::string(result.tokens[a]) + " " + std::string(result.tokens[b]));
  EXPECT_EQ(merges, (std::vector<std::string>{"s t", "e st", "o w", "l ow", "w est", "n e", "ne west", "w i", "wi d",
                                              "wid est", "low e", "lowe r"}));
}

// Case O21: after "aa" two pairs tie.
TEST(BpeTrain, O21TieRules) {
  EXPECT_EQ(trained("aaabdaaabac", 3), (Merges{{97, 97}, {256, 97}, {257, 98}}));
  EXPECT_EQ(trained("aaabdaaabac", 3, BpeTie::kSmallestByteIds), (Merges{{97, 97}, {97, 98}, {256, 257}}));
}

TEST(BpeTrain, NothingMergesAcrossSpecialTokensOrTexts) {
  const SpecialSet specials({"<|x|>"}, {0});
  const std::vector<std::string_view> texts = {"ab<|x|>ab<|x|>ba", "a", "b<|x|>"};
  const BpeTrained result = train_bpe(texts, specials, 100);
  EXPECT_EQ(result.merges, (Merges{{97, 98}, {98, 97}}));
}

TEST(BpeTrain, SameForAnyNumberOfThreads) {
  std::string text = random_text(5, 300'000, "aabcde  \n.");
  text += std::string(2 << 20, ' ') + random_text(6, 300'000, "aabcde  \n.") + std::string(1 << 20, 'q');
  const int before = num_threads();
  set_num_threads(1);
  const Merges one = trained(text, 60);
  set_num_threads(2);
  const Merges two = trained(text, 60);
  set_num_threads(before);
  EXPECT_EQ(one, two);
  EXPECT_EQ(one.size(), 60u);
}

// --- encoder ---

struct Vocabulary {
  TokenTable tokens;
  std::vector<BpeMerge> merges;
};

Vocabulary vocabulary_of(const std::string& text, int64_t max_merges) {
  const std::string_view view(text);
  const BpeTrained result = train_bpe({&view, 1}, {}, max_merges);
  Vocabulary v{result.tokens, {}};
  for (size_t k = 0; k < result.merges.size(); ++k)
    v.merges.push_back({result.merges[k].first, result.merges[k].second, static_cast<int32_t>(256 + k)});
  return v;
}

Ids naive_encode(const Vocabulary& v, std::string_view piece) {
  Ids ids;
  for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
  for (;;) {
    size_t best_rank = v.merges.size(), at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      for (size_t r = 0; r < best_rank; ++r)
        if (v.merges[r].left == ids[i] && v.merges[r].right == ids[i + 1]) best_rank = r, at = i;
    if (best_rank == v.merges.size()) return ids;
    ids[at] = v.merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

Ids encode_piece(const BpeModel& model, std::string_view piece, BpeScratch& scratch) {
  Ids ids;
  model.encode_piece(piece, ids, scratch);
  return ids;
}

// Merge lists as trained, shuffled (a merge before those that make its parts), and with a second way to a token.
std::vector<Vocabulary> vocabularies() {
  std::vector<Vocabulary> list;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Vocabulary v = vocabulary_of(random_text(seed, 300, "aaabbc"), 14);
    list.push_back(v);
    for (size_t i = v.merges.size(); i > 1; --i) std::swap(v.merges[i - 1], v.merges[random_below(seed, 1, i, i)]);
    list.push_back(v);
  }
  Vocabulary two_ways;
  for (int b = 0; b < 256; ++b) two_ways.tokens.push_back(std::string(1, static_cast<char>(b)));
  for (const char* token : {"ab", "bc", "abc"}) two_ways.tokens.push_back(token);
  two_ways.merges = {{'b', 'c', 257}, {'a', 257, 258}, {'a', 'b', 256}, {256, 'c', 258}};
  list.push_back(two_ways);
  two_ways.merges = {{'a', 'b', 256}, {'b', 'c', 257}, {'a', 257, 258}};  // "abc" is a token its bytes never give
  list.push_back(two_ways);
  return list;
}

TEST(BpeEncode, EveryShortPieceEqualsTheDefinition) {
  for (const Vocabulary& v : vocabularies()) {
    const BpeModel model(v.tokens, v.merges);
    BpeScratch scratch;
    for_each_text("abc", 8, [&](const std::string& piece) {
      ASSERT_EQ(encode_piece(model, piece, scratch), naive_encode(v, piece)) << piece;
    });
  }
}

TEST(BpeEncode, LongPiecesEqualTheDefinition) {
  uint64_t seed = 100;
  for (const Vocabulary& v : vocabularies()) {
    const BpeModel model(v.tokens, v.merges);
    BpeScratch scratch;
    for (const size_t n : {15, 16, 17, 30, 95, 96, 97, 98, 150, 400}) {
      const std::string piece = random_text(++seed, n, "aabc");
      ASSERT_EQ(encode_piece(model, piece, scratch), naive_encode(v, piece)) << piece;
      const std::string run(n, 'a');
      ASSERT_EQ(encode_piece(model, run, scratch), naive_encode(v, run)) << n;
    }
  }
}

// Above a few thousand bytes a vocabulary in order goes by lists of ranks, any other by the heap: the naive encoder is
// too slow there, so they are checked against pieces whose parts cannot merge with each other ('z' is in no merge).
TEST(BpeEncode, VeryLongPiecesAreTheirParts) {
  uint64_t seed = 200;
  for (const Vocabulary& v : vocabularies()) {
    const BpeModel model(v.tokens, v.merges);
    BpeScratch scratch;
    std::string piece;
    Ids expected;
    for (int i = 0; i < 200; ++i) {
      ++seed;
      const std::string part = random_text(seed, 5 + seed % 60, i % 3 == 0 ? "a" : "aabc") + "z";
      const Ids ids = naive_encode(v, part);
      expected.insert(expected.end(), ids.begin(), ids.end());
      piece += part;
    }
    ASSERT_GT(piece.size(), 4096u);
    ASSERT_EQ(encode_piece(model, piece, scratch), expected);
    ASSERT_EQ(encode_piece(model, piece, scratch), expected);  // the scratch is clean again
  }
}

// A run of a million letters in well under the time that a quadratic encoder needs (hours).
TEST(BpeEncode, AMillionLettersWithoutABreak) {
  const Vocabulary v = vocabulary_of(std::string(1000, 'a'), 5);
  const BpeModel model(v.tokens, v.merges);
  BpeScratch scratch;
  const Ids ids = encode_piece(model, std::string(1'000'003, 'a'), scratch);
  ASSERT_EQ(ids.size(), 31250u + 2u);
  EXPECT_EQ(v.tokens[ids[0]].size(), 32u);
  EXPECT_EQ(v.tokens[ids[31250]].size() + v.tokens[ids[31251]].size(), 3u);
}

TEST(BpeEncode, CacheGivesWhatMergingGives) {
  const Vocabulary v = vocabulary_of(random_text(3, 500, "abcd"), 20);
  const BpeModel model(v.tokens, v.merges);
  BpeScratch warm;
  for (int round = 0; round < 2; ++round)
    for (uint64_t i = 0; i < 20'000; ++i) {
      const std::string piece = random_text(i, 3 + i % 14, "abcd");
      const Ids ids = encode_piece(model, piece, warm);
      if (i % 50 != 0) continue;
      BpeScratch cold;
      ASSERT_EQ(ids, encode_piece(model, piece, cold)) << piece;
    }
}

TEST(BpeEncode, AByteWithoutATokenIsAnError) {
  TokenTable tokens;
  for (const char* t : {"a", "b", "ab"}) tokens.push_back(t);
  const BpeModel model(tokens, {{0, 1, 2}});
  BpeScratch scratch;
  EXPECT_EQ(encode_piece(model, "abba", scratch), (Ids{2, 1, 0}));
  test::expect_error([&] { encode_piece(model, "abx", scratch); }, "byte 0x78 has no token");
  test::expect_error([&] { encode_piece(model, std::string(200, 'x'), scratch); }, "byte 0x78 has no token");
}

}  // namespace
}  // namespace tally
