// The notes' assertions on tokenizers (lecture 1): each number of the list is one test. Lines where the notes slip are
// tested at the right value. Trap O21 stands here too.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tally/text/bpe_train.h"
#include "tally/text/pattern.h"
#include "tally/text/tokenizer.h"
#include "tally/text/utf8.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;
using Merges = std::vector<std::pair<int32_t, int32_t>>;

constexpr const char* kGlobe = "\xF0\x9F\x8C\x8D";  // U+1F30D
constexpr const char* kHello = "Hello, \xF0\x9F\x8C\x8D! \xE4\xBD\xA0\xE5\xA5\xBD!";

Tokenizer trained(TokenizerKind kind, std::string_view text, int64_t vocab_size = 0) {
  TokenizerSpec spec;
  spec.kind = kind, spec.vocab_size = vocab_size;
  return train_tokenizer(spec, {&text, 1});
}

// As minbpe's basic tokenizer: the text is one piece.
BpeTrained merged(std::string_view text, int64_t merges, BpeTie tie = BpeTie::kFirstSeen) {
  BpeTrainOptions options;
  options.max_merges = merges, options.tie = tie;
  return train_bpe(WordList{{{text, 1}}, {}}, options);
}

// The notes' merge(): each pair in turn, left to right, no overlaps.
Ids encoded(std::string_view text, const Merges& merges) {
  Ids ids;
  for (const unsigned char c : text) ids.push_back(c);
  for (size_t k = 0; k < merges.size(); ++k) {
    Ids out;
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool here = i + 1 < ids.size() && std::pair(ids[i], ids[i + 1]) == merges[k];
      out.push_back(here ? static_cast<int32_t>(256 + k) : ids[i]);
      i += here;
    }
    ids = out;
  }
  return ids;
}

uint32_t code_point(std::string_view text) { return utf8_next(text.data(), text.size()).code_point; }

std::vector<std::string> pieces(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> all;
  for_each_piece(pattern, text, [&](std::string_view piece) { all.emplace_back(piece); });
  return all;
}

TEST(Notes, A241_DecodeGivesTheStringBackAndIdsAreBelowTheVocabularySize) {
  for (const TokenizerKind kind :
       {TokenizerKind::kByte, TokenizerKind::kChar, TokenizerKind::kBpe, TokenizerKind::kWord}) {
    const Tokenizer t = trained(kind, kHello, kind == TokenizerKind::kBpe ? 260 : 0);
    const Ids ids = t.encode(kHello);
    EXPECT_EQ(t.decode(ids), kHello);
    for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < t.vocab_size());
  }
}

TEST(Notes, A242_CodePointsOfALetterAndOfTheGlobe) {
  EXPECT_EQ(code_point("a"), 97u);
  EXPECT_EQ(code_point(kGlobe), 127757u);
  std::string back;
  append_utf8(97, back), append_utf8(127757, back);
  EXPECT_EQ(back, std::string("a") + kGlobe);
}

// The notes call ord's result an ASCII code.
TEST(Notes, A243_ACodePointIsAsciiOnlyBelow128) {
  EXPECT_EQ(code_point("~"), 126u);
  EXPECT_EQ(std::string_view("~").size(), 1u);
  EXPECT_EQ(code_point("\xC3\xA9"), 233u);  // e with acute: two bytes, no ASCII
  EXPECT_GE(code_point(kGlobe), 128u);
}

TEST(Notes, A244_AVocabularyOfCodePointsIsLargeAndSparse) {
  const Tokenizer t = trained(TokenizerKind::kChar, kHello);
  EXPECT_EQ(t.vocab_size(), 10);  // of 127,758 that a vocabulary by code point needs
  EXPECT_LT(t.vocab_size() / (code_point(kGlobe) + 1.0), 1e-4);
}

TEST(Notes, A245_BytesOfALetter) { EXPECT_EQ(Tokenizer().encode("a"), Ids{97}); }

TEST(Notes, A246_TheGlobeIsFourBytes) { EXPECT_EQ(Tokenizer().encode(kGlobe), (Ids{240, 159, 140, 141})); }

TEST(Notes, A247_BytesCompressByOne) {
  const Ids ids = Tokenizer().encode(kHello);
  EXPECT_EQ(ids.size(), std::string_view(kHello).size());
  for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id <= 255);
}

// One page of the notes says 255.
TEST(Notes, A248_ThereAre256Bytes) {
  EXPECT_EQ(Tokenizer().vocab_size(), 256);
  EXPECT_EQ(Tokenizer().token_bytes(255), "\xFF");
}

TEST(Notes, A249_WordsByWordCharactersOrOneOther) {
  EXPECT_EQ(pieces(Pattern::regex("\\w+|."), "I'll say supercalifragilisticexpialidocious!"),
            (std::vector<std::string>{"I", "'", "ll", " ", "say", " ", "supercalifragilisticexpialidocious", "!"}));
}

// The notes list four segments with a lower-case i.
TEST(Notes, A250_WordsLoseNothing) {
  const std::string text = "I'll say supercalifragilisticexpialidocious!";
  std::string joined;
  for (const std::string& piece : pieces(Pattern::regex("\\w+|."), text)) joined += piece;
  EXPECT_EQ(joined, text);
}

TEST(Notes, A251_UnseenWordsBecomeUnknown) {
  const Tokenizer t = trained(TokenizerKind::kWord, "the cat sat");
  const std::optional<int32_t> unknown = t.special_id("<|unk|>");
  ASSERT_TRUE(unknown);
  const Ids ids = t.encode("the dog sat");
  EXPECT_EQ(ids.size(), 5u);
  EXPECT_EQ(ids[2], *unknown);
  EXPECT_EQ(t.decode(ids), "the <|unk|> sat");
  // The size is what the text happens to hold.
  EXPECT_GT(trained(TokenizerKind::kWord, "the cat sat on the mat").vocab_size(), t.vocab_size());
}

TEST(Notes, A252_AMergeIsOneMoreEntryAndTheBytesOfItsParts) {
  const BpeTrained t = merged("the cat in the hat", 3);
  ASSERT_EQ(t.merges.size(), 3u);
  EXPECT_EQ(t.tokens.size(), 256 + 3);
  for (int32_t k = 0; k < 3; ++k) {
    const auto [a, b] = t.merges[static_cast<size_t>(k)];
    EXPECT_EQ(t.tokens[256 + k], std::string(t.tokens[a]) + std::string(t.tokens[b]));
  }
}

TEST(Notes, A253_TiesGoToThePairMetFirst) {
  EXPECT_EQ(merged("zyab", 1).merges, (Merges{{'z', 'y'}}));  // all pairs stand once
  EXPECT_EQ(merged("abzy", 1).merges, (Merges{{'a', 'b'}}));
  EXPECT_EQ(merged("zyabab", 1).merges, (Merges{{'a', 'b'}}));  // the most frequent goes first
}

TEST(Notes, A254_TheCatInTheHat) {
  const std::string text = "the cat in the hat";
  const BpeTrained t = merged(text, 3);
  EXPECT_EQ(t.merges, (Merges{{116, 104}, {256, 101}, {257, 32}}));
  const Ids ids = encoded(text, t.merges);
  EXPECT_EQ(ids, (Ids{258, 99, 97, 116, 32, 105, 110, 32, 258, 104, 97, 116}));
  EXPECT_EQ(static_cast<double>(text.size()) / static_cast<double>(ids.size()), 1.5);
}

TEST(Notes, A255_Aaabdaaabac) {
  const BpeTrained t = merged("aaabdaaabac", 3);
  EXPECT_EQ(t.tokens[256], "aa");
  EXPECT_EQ(t.tokens[257], "aaa");
  EXPECT_EQ(t.tokens[258], "aaab");
  EXPECT_EQ(encoded("aaabdaaabac", t.merges), (Ids{258, 100, 258, 97, 99}));
}

// The notes' starting lines stand inside the docstring and never run; merge() is not given.
TEST(Notes, A256_MergesReplaceFromTheLeftWithoutOverlap) {
  EXPECT_EQ(encoded("aaaaa", {{97, 97}}), (Ids{256, 256, 97}));
  EXPECT_EQ(merged("aaaaa", 2).merges, (Merges{{97, 97}, {256, 256}}));
}

TEST(Notes, A257_FrequentSequencesAreOneTokenRareOnesSeveral) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += " the";
  text += " zyxw";
  const Tokenizer t = trained(TokenizerKind::kBpe, text, 259);
  EXPECT_EQ(t.encode(" the").size(), 1u);
  EXPECT_EQ(t.encode(" zyxw").size(), 5u);
  EXPECT_LT(t.encode(text).size(), text.size());
}

TEST(Traps, O21_BpeTiesAndOffsets) {
  const std::string text = "aaabdaaabac";
  const std::map<BpeTie, Merges> right = {{BpeTie::kFirstSeen, {{97, 97}, {256, 97}, {257, 98}}},
                                          {BpeTie::kGreatestBytes, {{97, 97}, {256, 97}, {257, 98}}},
                                          {BpeTie::kSmallestIds, {{97, 97}, {97, 98}, {256, 257}}}};
  for (const auto& [tie, merges] : right) {
    const BpeTrained t = merged(text, 3, tie);
    EXPECT_EQ(t.merges, merges) << bpe_tie_name(tie);
    EXPECT_EQ(encoded(text, t.merges), (Ids{258, 100, 258, 97, 99})) << bpe_tie_name(tie);
  }
  const Tokenizer bytes;
  EXPECT_EQ(bytes.char_offsets(bytes.encode("i \xE2\xAD\xA2 j")),
            (std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 2}, {2, 3}, {2, 3}, {2, 3}, {3, 4}, {4, 5}}));
}

}  // namespace
}  // namespace tally
