// The word kind: splits, unknown words, the cut-off, ties.
#include "tally/text/word.h"

#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;

Tokenizer train_words(std::string_view text, const TokenizerSpec& given = {}) {
  TokenizerSpec spec = given;
  spec.kind = TokenizerKind::kWord;
  return train_tokenizer(spec, {&text, 1});
}

std::vector<std::string> vocabulary(const Tokenizer& t) {
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < t.vocab_size(); ++id) tokens.emplace_back(t.token_bytes(id));
  return tokens;
}

TEST(Words, A249TheSentenceHasEightSegments) {
  const std::string_view text = "I'll say supercalifragilisticexpialidocious!";
  std::vector<std::string> pieces;
  for_each_piece(Pattern::named(kWordPattern), text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_EQ(pieces, (std::vector<std::string>{"I", "'", "ll", " ", "say", " ", "supercalifragilisticexpialidocious",
                                              "!"}));
  EXPECT_EQ(train_words(text).encode(text).size(), 8u);
}

TEST(Words, MostFrequentFirstThenAscendingByBytes) {
  const Tokenizer t = train_words("b b b a c a c d\n");
  EXPECT_EQ(vocabulary(t), (std::vector<std::string>{"<|unk|>", " ", "b", "a", "c", "\n", "d"}));
  EXPECT_EQ(t.encode("a b\nd"), (Ids{3, 1, 2, 5, 6}));
  EXPECT_EQ(t.decode(t.encode("d b b\na")), "d b b\na");
}

TEST(Words, A251RareAndUnseenWordsBecomeUnknown) {
  TokenizerSpec spec;
  spec.min_count = 2;
  const Tokenizer cut = train_words("b b b a c a c d\n", spec);
  EXPECT_EQ(vocabulary(cut), (std::vector<std::string>{"<|unk|>", " ", "b", "a", "c"}));
  EXPECT_EQ(cut.encode("d a e"), (Ids{0, 1, 3, 1, 0}));
  EXPECT_EQ(cut.decode(cut.encode("d a e")), "<|unk|> a <|unk|>");
  spec.min_count = 1, spec.vocab_size = 3;
  EXPECT_EQ(vocabulary(train_words("b b b a c a c d\n", spec)), (std::vector<std::string>{"<|unk|>", " ", "b"}));
  spec.vocab_size = 1;
  test::expect_error([&] { train_words("a b", spec); }, "at least 2");
}

TEST(Words, SpecialTokensStandFirstAndAreNotWords) {
  TokenizerSpec spec;
  spec.specials = {"<|end|>", "<|unk|>"};
  const Tokenizer t = train_words("a a<|end|>b <|unk|>", spec);
  EXPECT_EQ(vocabulary(t), (std::vector<std::string>{"<|end|>", "<|unk|>", " ", "a", "b"}));
  EXPECT_EQ(t.encode("a<|end|>z"), (Ids{3, 0, 1}));
  EXPECT_EQ(t.special_id("<|unk|>"), 1);
}

TEST(Words, AnyPatternAndAnyBytes) {
  TokenizerSpec spec;
  spec.pattern = Pattern::named("gpt2");
  const Tokenizer t = train_words("the cat in the hat\xFF", spec);
  EXPECT_EQ(t.decode(t.encode("the hat in\xFF the cat")), "the hat in\xFF the cat");
  EXPECT_EQ(t.encode("the cat in").size(), 3u);
}

TEST(Words, SavedAndLoadedIsTheSame) {
  const test::TempFolder folder;
  for (const char* pattern : {"gpt2", "regex:\\w+|.", "regex:[a-z]+"}) {
    TokenizerSpec spec;
    spec.specials = {"<|end|>"};
    spec.pattern = Pattern::named(pattern);
    const Tokenizer t = train_words("the cat, the hat\n\xFF \xC3\xA9t\xC3\xA9<|end|>", spec);
    t.save(folder / "words");
    const Tokenizer back = Tokenizer::load(folder / "words");
    EXPECT_EQ(back.kind(), TokenizerKind::kWord);
    EXPECT_EQ(back.hash(), t.hash());
    EXPECT_EQ(vocabulary(back), vocabulary(t));
    const std::string_view text = "the hat the dog<|end|>\n\xFF\xC3\xA9t\xC3\xA9";
    EXPECT_EQ(back.encode(text), t.encode(text)) << pattern;
  }
}

TEST(Words, FromCountsOfSeveralProcesses) {
  TokenizerSpec spec;
  spec.reduce_words = [](WordList list) {
    for (WordCount& w : list.words) w.count *= 2;
    list.words.push_back({"z", 100});
    return list;
  };
  EXPECT_EQ(vocabulary(train_words("a b b", spec)), (std::vector<std::string>{"<|unk|>", "z", " ", "b", "a"}));
  spec.kind = TokenizerKind::kBpe, spec.vocab_size = 257;
  spec.reduce_words = [](WordList list) {
    EXPECT_EQ(list.words.size(), 2u);
    EXPECT_EQ(list.words[0].word, " xy");  // ascending by bytes
    list.words = {{"ab", int64_t{3} << 32}, {"xy", int64_t{4} << 32}};
    return list;
  };
  const std::string_view text = "ab xy";
  EXPECT_EQ(train_tokenizer(spec, {&text, 1}).token_bytes(256), "xy");
}

}  // namespace
}  // namespace tally
