// The encoder against merging by definition, on random vocabularies of every kind; see bpe.h.
#include <gtest/gtest.h>

#include <algorithm>

#include "tally/base/rng.h"
#include "tally/text/bpe_text.h"
#include "tally/text/tokenizer.h"
#include "tally/text/tokenizer_impl.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;

// Numbers one after the other.
struct Draws {
  uint64_t seed, at = 0;
  size_t below(size_t n) { return static_cast<size_t>(random_below(seed, 0, at++, n)); }
};

struct Vocabulary {
  TokenTable tokens;
  std::vector<BpeMerge> merges;
  BpeRules rules;

  int32_t id_of(const std::string& bytes) const {
    for (int32_t id = 0; id < tokens.size(); ++id)
      if (tokens[id] == bytes) return id;
    return -1;
  }
};

// The definition: look at all pairs anew before each merge.
Ids naive_encode(const Vocabulary& v, const std::string& piece) {
  if (v.rules.ignore_merges || v.rules.merge_by_id)
    if (const int32_t id = v.id_of(piece); id >= 0) return {id};
  Ids ids;
  for (const char c : piece) ids.push_back(v.id_of({c}));
  for (;;) {
    size_t best = ids.size();
    std::pair<size_t, int32_t> best_merge{SIZE_MAX, -1};  // rank, result
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      std::pair<size_t, int32_t> merge{SIZE_MAX, -1};
      if (v.rules.merge_by_id) {
        const int32_t id = v.id_of(std::string(v.tokens[ids[i]]) + std::string(v.tokens[ids[i + 1]]));
        if (id >= 0) merge = {static_cast<size_t>(id), id};
      } else {
        for (size_t rank = 0; rank < v.merges.size() && merge.second < 0; ++rank)
          if (v.merges[rank].left == ids[i] && v.merges[rank].right == ids[i + 1])
            merge = {rank, v.merges[rank].result};
      }
      if (merge.first < best_merge.first) best = i, best_merge = merge;
    }
    if (best == ids.size()) return ids;
    ids[best] = best_merge.second;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

constexpr std::string_view kAlphabet = "abcd";

std::string random_piece(Draws& draw, size_t letters) {
  std::string piece;
  const size_t length = 1 + draw.below(draw.below(8) == 0 ? 150 : 24), kind = draw.below(4);
  for (size_t i = 0; i < length; ++i)
    piece += kind == 0 ? kAlphabet[0] : kind == 1 ? kAlphabet[i % letters] : kAlphabet[draw.below(letters)];
  return piece;
}

// Tokens from random joins of earlier ones; `shuffle`: ranks and ids in no order that training would give.
Vocabulary random_vocabulary(Draws& draw, size_t letters, size_t joins, bool shuffle, BpeRules rules) {
  Vocabulary v;
  v.rules = rules;
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (size_t i = 0; i < letters; ++i) names.emplace_back(1, kAlphabet[i]);
  while (pairs.size() < joins) {
    const std::string left = names[draw.below(names.size())], right = names[draw.below(names.size())];
    if (left.size() + right.size() > 20 || std::find(pairs.begin(), pairs.end(), std::pair(left, right)) != pairs.end())
      continue;
    pairs.emplace_back(left, right);
    if (std::find(names.begin(), names.end(), left + right) == names.end()) names.push_back(left + right);
  }
  if (shuffle) {
    for (size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[draw.below(i)]);
    for (size_t i = pairs.size(); i > 1; --i) std::swap(pairs[i - 1], pairs[draw.below(i)]);
  }
  for (const std::string& name : names) v.tokens.push_back(name);
  if (!rules.merge_by_id)
    for (const auto& [left, right] : pairs) v.merges.push_back({v.id_of(left), v.id_of(right), v.id_of(left + right)});
  return v;
}

void expect_equal(const Vocabulary& v, Draws& draw, size_t letters, size_t pieces) {
  const BpeModel model(v.tokens, v.merges, {}, v.rules);
  BpeScratch scratch;
  for (size_t i = 0; i < pieces; ++i) {
    const std::string piece = random_piece(draw, letters);
    const Ids want = naive_encode(v, piece);
    Ids got, whole;
    model.encode_piece(piece, got, scratch);
    ASSERT_EQ(got, want) << piece;
    BpeTextEncoder text(model, piece, &whole, scratch);  // with caches
    text.add(piece);
    text.finish();
    ASSERT_EQ(whole, want) << piece;
    ASSERT_EQ(text.count(), static_cast<int64_t>(want.size()));
  }
}

// More different pieces than the caches hold at first, twice, of one token and of more than a place of the cache has.
TEST(Encoding, CachesGrowAndKeepWhatTheyHold) {
  Draws draw{7};
  const Vocabulary v = random_vocabulary(draw, kAlphabet.size(), 40, false, {});
  const BpeModel model(v.tokens, v.merges, {}, v.rules);
  std::vector<std::string> pieces;
  for (size_t i = 0; i < 30'000; ++i) pieces.push_back(random_piece(draw, kAlphabet.size()));
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  Ids want;
  for (const std::string& piece : pieces)
    for (const int32_t id : naive_encode(v, piece)) want.push_back(id);
  for (const int most_bits : {12, 13, BpeScratch::kMostBits}) {
    BpeScratch scratch(most_bits);
    for (int time = 0; time < 2; ++time) {
      Ids got;
      BpeTextEncoder encoder(model, text, &got, scratch);
      size_t at = 0;
      for (const std::string& piece : pieces) {
        encoder.add(std::string_view(text).substr(at, piece.size()));
        at += piece.size();
      }
      encoder.finish();
      ASSERT_EQ(got, want) << most_bits << time;
    }
    EXPECT_GE(scratch.bits, std::min(most_bits, 14));
    EXPECT_LE(scratch.bits, most_bits);
  }
}

class EncodesAsDefined : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(EncodesAsDefined, RandomVocabularies) {
  const auto [rules, shuffle] = GetParam();
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Draws draw{seed + 1000 * static_cast<uint64_t>(rules)};
    const size_t letters = 1 + draw.below(kAlphabet.size());
    const Vocabulary v =
        random_vocabulary(draw, letters, letters == 1 ? 6 : 5 + draw.below(50), shuffle, {rules == 1, rules == 2});
    ASSERT_NO_FATAL_FAILURE(expect_equal(v, draw, letters, 100)) << seed;
  }
}
// Merges by rank, whole pieces first, merges by the result's id; in the order of training and in none.
INSTANTIATE_TEST_SUITE_P(All, EncodesAsDefined, testing::Combine(testing::Values(0, 1, 2), testing::Bool()));

// A vocabulary trained on real text, its pieces and random ones.
TEST(Encode, TrainedVocabularyAsDefined) {
  std::string text;
  Draws draw{7};
  for (int i = 0; i < 4000; ++i) text += random_piece(draw, 4).substr(0, 9) + (i % 3 == 0 ? "\n" : " ");
  const std::string_view view = text;
  const Tokenizer t = train_tokenizer({.kind = TokenizerKind::kBpe, .vocab_size = 700, .specials = {}}, {&view, 1});
  for (int i = 0; i < 10000; ++i) {
    const std::string piece = random_piece(draw, 4);
    const Ids ids = t.encode_ordinary(piece);
    ASSERT_EQ(t.decode(ids), piece);
    // Each token is its own encoding and nothing merges across two neighbours: that is what makes it the encoding.
    for (size_t k = 0; k < ids.size(); ++k) {
      ASSERT_EQ(t.encode_ordinary(t.token_bytes(ids[k])), Ids{ids[k]});
      if (k == 0) continue;
      const std::string two = std::string(t.token_bytes(ids[k - 1])) + std::string(t.token_bytes(ids[k]));
      ASSERT_EQ(t.encode_ordinary(two), (Ids{ids[k - 1], ids[k]}));
    }
  }
}

TEST(Encode, AnIdWithoutBytesIsLeftOut) {
  TokenizerParts parts;
  for (const char* token : {"a", "", "b", "", "ab"}) parts.tokens.push_back(token);
  parts.rules.merge_by_id = true;
  const Tokenizer t(make_tokenizer(std::move(parts)));
  EXPECT_EQ(t.encode("abba"), (Ids{4, 2, 0}));
  EXPECT_EQ(t.token_bytes(1), "");
  test::expect_error([&] { t.decode(Ids{0, 3}); }, "token id 3 is one that the vocabulary leaves out");
  test::expect_error([&] { t.encode("abc"); }, "byte 0x63 has no token");
}

TEST(Encode, LongTokensOfWholePieces) {
  TokenizerParts parts;
  const std::string word = "abababababababababab";  // longer than a key
  for (const std::string& token : {std::string("a"), std::string("b"), word, std::string("aab")})
    parts.tokens.push_back(token);
  parts.rules.ignore_merges = true;
  const Tokenizer t(make_tokenizer(std::move(parts)));
  EXPECT_EQ(t.encode(word), Ids{2});
  EXPECT_EQ(t.encode("aab"), Ids{3});
  EXPECT_EQ(t.encode("aaab"), (Ids{0, 0, 0, 1}));
  EXPECT_EQ(t.encode(word + "a").size(), 21u);
}

// Time per byte does not grow with the run; nor does memory beyond the ids.
TEST(Encode, RunsOfOneKindAreLinear) {
  TokenizerParts parts;
  std::string token = "a";
  for (int i = 0; i < 8; ++i, token += token) parts.tokens.push_back(token);
  parts.tokens.push_back("b");
  parts.tokens.push_back("ab");
  parts.rules.merge_by_id = true;
  const Tokenizer t(make_tokenizer(std::move(parts)));
  const std::string run(3'000'001, 'a');
  const Ids ids = t.encode(run);
  EXPECT_EQ(t.decode(ids), run);
  EXPECT_EQ(ids.size(), 3'000'001u / 128 + 2);  // 23437 * 128 + 64 + 1
  std::string mixed;
  for (int i = 0; i < 1'000'000; ++i) mixed += i % 3 == 0 ? "aab" : "ab";
  EXPECT_EQ(t.decode(t.encode(mixed)), mixed);
}

}  // namespace
}  // namespace tally
