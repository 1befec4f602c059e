// The trainer and the word counter against naive ones that follow the definition, under each tie rule.
#include "tally/text/bpe_train.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "tally/base/parallel.h"
#include "tally/base/rng.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;
using Merges = std::vector<std::pair<int32_t, int32_t>>;

constexpr std::array kTies = {BpeTie::kGreatestBytes, BpeTie::kSmallestIds, BpeTie::kFirstSeen,
                              BpeTie::kSmallestByteIds};

// Pieces of all texts in order, special tokens left out.
std::vector<Ids> pieces_of(std::span<const std::string_view> texts, const SpecialSet& specials) {
  std::vector<Ids> words;
  for (const std::string_view text : texts)
    for_each_segment(
        text, specials,
        [&words](std::string_view segment) {
          for_each_piece(Pattern(), segment, [&words](std::string_view piece) {
            words.emplace_back();
            for (const char c : piece) words.back().push_back(static_cast<unsigned char>(c));
          });
        },
        [](int32_t) {});
  return words;
}

// The definition: all pairs are counted anew before each merge, in the order of the text; of the most frequent ones
// the tie rule takes one; it is replaced from left to right without overlap.
Merges naive_train(std::vector<Ids> words, const BpeTrainOptions& o) {
  std::vector<std::string> bytes(256);
  for (size_t b = 0; b < 256; ++b) bytes[b] = static_cast<char>(b);
  std::vector<int32_t> rank(256);
  for (size_t i = 0; i < 256; ++i) rank[printable_byte_order()[i]] = static_cast<int32_t>(i);
  Merges merges;
  while (static_cast<int64_t>(merges.size()) < o.max_merges) {
    struct Seen {
      int64_t count = 0;
      size_t place = 0;
    };
    std::map<std::pair<int32_t, int32_t>, Seen> counts;
    size_t place = 0;
    for (const Ids& w : words)
      for (size_t i = 0; i + 1 < w.size(); ++i) {
        Seen& seen = counts[{w[i], w[i + 1]}];
        if (seen.count++ == 0) seen.place = ++place;
      }
    const auto text_of = [&bytes](const auto& p) {
      return std::pair(bytes[static_cast<size_t>(p.first)], bytes[static_cast<size_t>(p.second)]);
    };
    const auto ids_of = [&rank](const auto& p) {
      const auto id = [&rank](int32_t t) { return t < 256 ? rank[static_cast<size_t>(t)] : t; };
      return std::pair(id(p.first), id(p.second));
    };
    auto best = counts.end();
    for (auto it = counts.begin(); it != counts.end(); ++it) {
      const auto& [left, right] = it->first;
      const auto length = bytes[static_cast<size_t>(left)].size() + bytes[static_cast<size_t>(right)].size();
      if (o.max_token_bytes > 0 && static_cast<int64_t>(length) > o.max_token_bytes) continue;
      if (it->second.count < std::max<int64_t>(1, o.min_frequency)) continue;
      const auto wins = [&] {
        switch (o.tie) {
          case BpeTie::kGreatestBytes:
            return text_of(it->first) > text_of(best->first);
          case BpeTie::kSmallestIds:
            return ids_of(it->first) < ids_of(best->first);
          case BpeTie::kFirstSeen:
            return it->second.place < best->second.place;
          case BpeTie::kSmallestByteIds:
            return it->first < best->first;
        }
        return false;
      };
      if (best == counts.end() || it->second.count > best->second.count ||
          (it->second.count == best->second.count && wins()))
        best = it;
    }
    if (best == counts.end()) break;
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

BpeTrainOptions options_of(int64_t max_merges, BpeTie tie = BpeTie::kGreatestBytes) {
  BpeTrainOptions options;
  options.max_merges = max_merges, options.tie = tie;
  return options;
}

Merges trained(std::span<const std::string_view> texts, const SpecialSet& specials, const BpeTrainOptions& options) {
  WordCounter counter(Pattern(), specials);
  counter.add(texts);
  return train_bpe(counter.take(word_order(options.tie)), options).merges;
}

std::string random_text(uint64_t seed, size_t n, std::span<const std::string_view> letters) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += letters[random_below(seed, 0, i, letters.size())];
  return text;
}

std::string random_text(uint64_t seed, size_t n, std::string_view alphabet) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += alphabet[random_below(seed, 0, i, alphabet.size())];
  return text;
}

struct Corpus {
  const char* name;
  std::vector<std::string> texts;
};

std::vector<Corpus> ten_corpora() {
  std::string all_bytes;
  for (int round = 0; round < 3; ++round)
    for (int b = 255; b >= 0; --b) all_bytes += static_cast<char>(b);
  constexpr std::string_view kLetters[] = {"a",   "b",    "\xC3\xA9", "\xD0\xB6", "\xE4\xB8\xAD",
                                           "\xE6\x96\x87", "\xF0\x9F\x8C\x8D", " ", "\n", "'s", "12"};
  return {
      {"runs that overlap", {"aaaaaaa aaa aaaa aa a aaaaa aaaaaaaaaaaaaaaaa"}},
      {"nothing", {"", ""}},
      {"one byte", {"x"}},
      {"specials", {"ab<|x|>abab<|x|><|x|>ba<|x", "|>aba<|x|>"}},
      {"worked examples", {"aaabdaaabac", "the cat in the hat", "low low low lower lower widest newest newest"}},
      {"unicode", {random_text(1, 600, kLetters), random_text(2, 200, kLetters)}},
      {"random, three letters", {random_text(3, 700, "aab c"), random_text(4, 300, "abc  ")}},
      {"random, words", {random_text(5, 900, "etaoin shrdlu. ETA'")}},
      {"every byte", {all_bytes, "\xFF\xFE\xFF\xFE\x80"}},
      {"long words", {random_text(6, 900, "ab"), random_text(7, 600, "abc"), std::string(700, 'q')}},
  };
}

TEST(BpeTrainer, TenCorporaEqualTheDefinitionUnderEachTieRule) {
  const SpecialSet specials({"<|x|>"}, {0});
  for (const Corpus& corpus : ten_corpora())
    for (const BpeTie tie : kTies) {
      SCOPED_TRACE(std::string(corpus.name) + ", " + bpe_tie_name(tie));
      const std::vector<std::string_view> texts(corpus.texts.begin(), corpus.texts.end());
      const Merges expected = naive_train(pieces_of(texts, specials), options_of(120, tie));
      EXPECT_EQ(trained(texts, specials, options_of(120, tie)), expected);
      BpeTrainOptions narrow = options_of(120, tie);
      narrow.min_frequency = 3, narrow.max_token_bytes = 5;
      EXPECT_EQ(trained(texts, specials, narrow), naive_train(pieces_of(texts, specials), narrow));
      EXPECT_EQ(trained(texts, specials, options_of(70'000, tie)),  // ids of 32 bits
                naive_train(pieces_of(texts, specials), options_of(70'000, tie)));
    }
}

TEST(BpeTrainer, ManyRandomTextsEqualTheDefinitionUnderEachTieRule) {
  for (uint64_t seed = 0; seed < 60; ++seed)
    for (const BpeTie tie : kTies) {
      const std::string text = random_text(seed, 40 + seed * 7, seed % 3 == 0 ? "aab" : "aabbc d");
      const std::string_view view(text);
      ASSERT_EQ(trained({&view, 1}, {}, options_of(50, tie)), naive_train(pieces_of({&view, 1}, {}), options_of(50, tie)))
          << seed << " " << bpe_tie_name(tie);
    }
}

// Case O21, and A253: max() over a dict in the order of the text.
TEST(BpeTrainer, O21EachTieRule) {
  const std::string_view text = "aaabdaaabac";
  const auto run = [&text](BpeTie tie) { return trained({&text, 1}, {}, options_of(3, tie)); };
  EXPECT_EQ(run(BpeTie::kFirstSeen), (Merges{{97, 97}, {256, 97}, {257, 98}}));
  EXPECT_EQ(run(BpeTie::kGreatestBytes), (Merges{{97, 97}, {256, 97}, {257, 98}}));
  EXPECT_EQ(run(BpeTie::kSmallestIds), (Merges{{97, 97}, {97, 98}, {256, 257}}));
  EXPECT_EQ(run(BpeTie::kSmallestByteIds), (Merges{{97, 97}, {97, 98}, {256, 257}}));
}

// Words in one piece, as minbpe's basic tokenizer takes its text.
TEST(BpeTrainer, A254TheCatInTheHatWithoutAPattern) {
  WordList list;
  list.words = {{"the cat in the hat", 1}};
  EXPECT_EQ(train_bpe(std::move(list), options_of(3, BpeTie::kFirstSeen)).merges,
            (Merges{{116, 104}, {256, 101}, {257, 32}}));
}

TEST(BpeTrainer, TheOrderOfDocumentsDoesNotMatterUnderGreatestBytes) {
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < 40; ++i) texts.push_back(random_text(i, 300, "abcde fgh ij"));
  std::vector<std::string_view> order(texts.begin(), texts.end());
  const Merges merges = trained(order, {}, options_of(200));
  std::reverse(order.begin(), order.end());
  EXPECT_EQ(trained(order, {}, options_of(200)), merges);
  std::rotate(order.begin(), order.begin() + 7, order.end());
  EXPECT_EQ(trained(order, {}, options_of(200)), merges);
  EXPECT_EQ(merges.size(), 200u);
}

TEST(BpeTrainer, SameBitsForOneToEightThreads) {
  const std::string part = random_text(5, 600'000, "aabcdefgh ij k  \n.");
  std::string text = part + std::string(size_t{2} << 20, ' ');  // several parts, one of them without a border
  for (size_t i = 1; i < 8; ++i) text += part.substr(i * 1000) + random_text(i, 5'000, "xyz ");
  text += std::string(300'000, 'q');
  const std::vector<std::string_view> texts = {text, "ab<|x|>cd", std::string_view(text).substr(1000, 5000)};
  const SpecialSet specials({"<|x|>"}, {0});
  const int before = num_threads();
  for (const BpeTie tie : {BpeTie::kGreatestBytes, BpeTie::kFirstSeen}) {
    Merges one;
    for (int threads = 1; threads <= 8; ++threads) {
      set_num_threads(threads);
      const Merges merges = trained(texts, specials, options_of(100, tie));
      if (threads == 1) one = merges;
      EXPECT_EQ(merges, one) << threads << " threads, " << bpe_tie_name(tie);
    }
    EXPECT_EQ(one.size(), 100u);
  }
  set_num_threads(before);
}

TEST(WordCounter, FilesInBlocksEqualTextsAtOnce) {
  const test::TempFolder folder;
  const std::string part = random_text(1, 1 << 18, "abcdefghij   .\n\t'1");
  std::string text;
  for (size_t i = 0; text.size() < (size_t{18} << 20); ++i) {
    text += part.substr(i * 97) + std::to_string(i);
    if (i % 3 == 0) text += "<|a b|>";
    if (i == 20) text += std::string(size_t{9} << 20, 'q');  // longer than a block of one thread
  }
  write_file_atomic(folder / "text", text);
  const int before = num_threads();
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    const SpecialSet specials = threads == 1 ? SpecialSet() : SpecialSet({"<|a b|>", "j .", "<|"}, {0, 1, 2});
    for (const WordOrder order : {WordOrder::kBytes, WordOrder::kFirstMet}) {
      const std::string_view view(text);
      WordCounter whole(Pattern(), specials), blocks(Pattern(), specials);
      whole.add({&view, 1});
      FileReader file(folder / "text");
      blocks.add(file);
      EXPECT_EQ(blocks.bytes_read(), static_cast<int64_t>(text.size()));
      const WordList a = whole.take(order), b = blocks.take(order);
      ASSERT_EQ(a.words.size(), b.words.size());
      int64_t total = 0;
      for (size_t i = 0; i < a.words.size(); ++i) {
        ASSERT_EQ(a.words[i].word, b.words[i].word);
        ASSERT_EQ(a.words[i].count, b.words[i].count);
        total += a.words[i].count;
      }
      int64_t pieces = 0;
      for_each_segment(
          view, specials,
          [&pieces](std::string_view segment) {
            for_each_piece(Pattern(), segment, [&pieces](std::string_view) { ++pieces; });
          },
          [](int32_t) {});
      EXPECT_EQ(total, pieces);
    }
  }
  set_num_threads(before);
}

TEST(WordCounter, OrdersAndCounts) {
  const std::vector<std::string_view> texts = {"b a b", " c a a very, veryverylongwordindeed", "b"};
  WordCounter counter(Pattern(), {});
  counter.add(texts);
  std::vector<std::pair<std::string, int64_t>> words;
  for (const WordCount& w : counter.take(WordOrder::kFirstMet).words) words.emplace_back(w.word, w.count);
  EXPECT_EQ(words, (std::vector<std::pair<std::string, int64_t>>{{"b", 2},
                                                                 {" a", 3},
                                                                 {" b", 1},
                                                                 {" c", 1},
                                                                 {" very", 1},
                                                                 {",", 1},
                                                                 {" veryverylongwordindeed", 1}}));
  EXPECT_TRUE(counter.take(WordOrder::kBytes).words.empty());
}

WordList words_of(std::vector<WordCount> words) { return {std::move(words), {}}; }

// huggingface/tokenizers#437, #2058: 32-bit counts overflow and the most frequent word is never merged.
TEST(BpeTrainer, HF437CountsBeyond32BitsAreExact) {
  const int64_t big = int64_t{1} << 31;
  const BpeTrained result = train_bpe(
      words_of({{"the", 3 * big}, {"of", 2 * big + 1}, {"to", 2 * big}, {"in", big - 1}}), options_of(5));
  EXPECT_EQ(result.merges, (Merges{{'t', 'h'}, {256, 'e'}, {'o', 'f'}, {'t', 'o'}, {'i', 'n'}}));
  const int64_t most = std::numeric_limits<int64_t>::max();
  test::expect_error([&] { train_bpe(words_of({{"abc", most / 2}}), options_of(1)); }, "beyond 64 bits");
  test::expect_error([&] { train_bpe(words_of({{"abc", -1}}), options_of(1)); }, "not negative");
  EXPECT_TRUE(train_bpe(words_of({{"abc", 0}}), options_of(5)).merges.empty());
}

// huggingface/tokenizers#2320: counts that fall below zero and are read as huge ones: a merge that stands nowhere.
TEST(BpeTrainer, HF2320NoMergeStandsNowhere) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = random_text(seed, 38, "aab ");
    const std::string_view view(text);
    const BpeTrained result = train_bpe({&view, 1}, {}, 100);
    std::vector<Ids> words = pieces_of({&view, 1}, {});
    for (size_t k = 0; k < result.merges.size(); ++k) {
      int found = 0;
      for (Ids& w : words)
        for (size_t i = 0; i + 1 < w.size(); ++i)
          if (w[i] == result.merges[k].first && w[i + 1] == result.merges[k].second) {
            w[i] = static_cast<int32_t>(256 + k);
            w.erase(w.begin() + static_cast<ptrdiff_t>(i) + 1);
            ++found;
          }
      ASSERT_GT(found, 0) << text << ", merge " << k;
    }
  }
}

// huggingface/tokenizers#439: a merge whose result is not in the vocabulary. Every result is there, once, and is the
// two parts joined.
TEST(BpeTrainer, HF439EveryMergeHasItsToken) {
  for (const Corpus& corpus : ten_corpora()) {
    const std::vector<std::string_view> texts(corpus.texts.begin(), corpus.texts.end());
    for (const BpeTie tie : kTies) {
      const BpeTrained result = train_bpe(texts, {}, 100, tie);
      ASSERT_EQ(static_cast<size_t>(result.tokens.size()), 256 + result.merges.size());
      std::vector<std::string> seen;
      for (size_t k = 0; k < result.merges.size(); ++k) {
        const auto& [left, right] = result.merges[k];
        const auto id = static_cast<int32_t>(256 + k);
        EXPECT_LT(std::max(left, right), id);
        EXPECT_EQ(result.tokens[id], std::string(result.tokens[left]) + std::string(result.tokens[right]));
        seen.emplace_back(result.tokens[id]);
      }
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end()) << corpus.name;
    }
  }
}

// huggingface/tokenizers#994, #1546: without a pattern a corpus is one word; a merge must touch only its own places.
TEST(BpeTrainer, HF994OneWordOfMegabytesTrainsInLinearTime) {
  std::string text = random_text(9, 2'000'000, "abcdefghij");
  WordList list;
  list.words = {{text, 1}};
  const BpeTrained result = train_bpe(std::move(list), options_of(2000));
  ASSERT_EQ(result.merges.size(), 2000u);
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  const Merges first = naive_train({ids}, options_of(3));
  EXPECT_TRUE(std::equal(first.begin(), first.end(), result.merges.begin()));
}

TEST(BpeTrainer, MemoryLimitNamesTheNeed) {
  std::string text;
  for (uint64_t i = 0; i < 60'000; ++i) text += " w" + std::to_string(i * 7919);
  const std::string_view view(text);
  WordCounter counter(Pattern(), {}, {.max_memory = 1 << 20, .progress = {}, .total_bytes = 0});
  test::expect_error([&] { counter.add({&view, 1}); }, "more than the 1.0 MiB allowed");
  BpeTrainOptions options = options_of(1000);
  options.max_memory = 100'000;
  test::expect_error([&] { trained({&view, 1}, {}, options); }, "of memory allowed");
  options.max_memory = 1 << 30;
  EXPECT_EQ(trained({&view, 1}, {}, options), trained({&view, 1}, {}, options_of(1000)));
}

TEST(BpeTrainer, ProgressRunsToTheEnd) {
  const std::string text = random_text(3, 50'000, "abcdefgh ijk");
  const std::string_view view(text);
  std::map<std::string, int64_t> last;
  const TrainProgress progress = [&last](const char* phase, int64_t done, int64_t total) {
    EXPECT_GE(done, last[phase]);
    EXPECT_LE(done, total);
    last[phase] = done;
  };
  WordCounter counter(Pattern(), {}, {.max_memory = 0, .progress = progress, .total_bytes = static_cast<int64_t>(text.size())});
  counter.add({&view, 1});
  BpeTrainOptions options = options_of(300);
  options.progress = progress;
  train_bpe(counter.take(WordOrder::kAny), options);
  EXPECT_EQ(last, (std::map<std::string, int64_t>{{"reading", 50'000}, {"merging", 256}}));
}

}  // namespace
}  // namespace tally
