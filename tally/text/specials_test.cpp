// Special tokens in text: policies, overlaps, very many of them; offsets, counts, batches and dropout of text with
// them.
#include "tally/text/specials.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "tally/base/parallel.h"
#include "tally/base/rng.h"
#include "tally/text/tokenizer.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

Tokenizer trained(std::vector<std::string> specials) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "the cat ate the hat of the \xC3\xA9l\xC3\xA9phant\n";
  const std::string_view view = text;
  return train_tokenizer({.kind = TokenizerKind::kBpe, .vocab_size = 300, .specials = std::move(specials)}, {&view, 1});
}

TEST(SpecialPolicy, AllowAsTextRefuse) {
  const Tokenizer t = trained({"<|a|>", "<|b|>"});
  const std::string text = "the<|a|> cat";
  const Ids allowed = t.encode(text, Specials::kAllow), as_text = t.encode(text, Specials::kAsText);
  EXPECT_EQ(std::count(allowed.begin(), allowed.end(), 0), 1);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), 0), 0);
  EXPECT_EQ(t.decode(as_text), text);
  EXPECT_EQ(as_text, t.encode_ordinary(text));
  EXPECT_EQ(as_text, t.encode(text, false));
  EXPECT_EQ(allowed, t.encode(text));
  test::expect_error([&] { t.encode(text, Specials::kRefuse); }, "special token \"<|a|>\" at byte 3; allow it");
  EXPECT_EQ(t.encode("the cat", Specials::kRefuse), t.encode("the cat"));
}

TEST(SpecialPolicy, SomeAllowedByName) {
  const Tokenizer t = trained({"<|a|>", "<|b|>", "<|a|><|b|>"});
  EXPECT_EQ(t.encode("<|a|> the", SpecialPolicy({"<|a|>"}, Specials::kRefuse))[0], 0);
  test::expect_error([&] { t.encode("<|a|> <|b|>", SpecialPolicy({"<|a|>"}, Specials::kRefuse)); },
                     "\"<|b|>\" at byte 6");
  // The longest is meant, so it is the one that is refused; as text it is not looked for at all.
  test::expect_error([&] { t.encode("<|a|><|b|>", SpecialPolicy({"<|a|>"}, Specials::kRefuse)); },
                     "\"<|a|><|b|>\" at byte 0");
  Ids want{0};
  t.encode_append("<|b|>", want, Specials::kAsText);
  EXPECT_EQ(t.encode("<|a|><|b|>", SpecialPolicy({"<|a|>"}, Specials::kAsText)), want);
  EXPECT_EQ(t.encode("<|a|><|b|>"), Ids{2});
  test::expect_error([&] { t.encode("x", SpecialPolicy({"<|c|>"}, Specials::kAsText)); }, "no such special token");
}

TEST(SpecialPolicy, EveryFormObeysIt) {
  const Tokenizer t = trained({"<|a|>", "<|b|>"});
  std::string text;
  for (int i = 0; i < 40000; ++i) text += i % 7 == 0 ? "<|a|>the cat " : " ate <| the hat\n";
  const std::string bad = text + "<|b|>";
  for (const SpecialPolicy& policy :
       {SpecialPolicy(Specials::kAllow), SpecialPolicy(Specials::kAsText), SpecialPolicy({"<|a|>"}, Specials::kRefuse),
        SpecialPolicy({"<|a|>"}, Specials::kAsText), SpecialPolicy({"<|b|>"}, Specials::kAsText)}) {
    const Ids ids = t.encode(text, policy);
    EXPECT_EQ(t.decode(ids), text);
    EXPECT_EQ(t.encode_parallel(text, policy), ids);
    EXPECT_EQ(t.count(text, policy), static_cast<int64_t>(ids.size()));
    EXPECT_EQ(t.encode_with_offsets(text, policy).ids, ids);
    EXPECT_EQ(t.encode_with_dropout(text, 0, 1, policy), ids);
    const std::string_view texts[] = {text, "", "the cat"};
    EXPECT_EQ(t.encode_batch(texts, policy), (std::vector<Ids>{ids, {}, t.encode("the cat")}));
    StreamEncoder stream(t, policy);
    Ids streamed;
    for (size_t at = 0; at < text.size(); at += 1000) stream.push(std::string_view(text).substr(at, 1000), streamed);
    stream.finish(streamed);
    EXPECT_EQ(streamed, ids);
  }
  const SpecialPolicy refuse({"<|a|>"}, Specials::kRefuse);
  const std::string where = fmt::format("\"<|b|>\" at byte {}", text.size());
  test::expect_error([&] { t.encode_parallel(bad, refuse); }, where);
  test::expect_error([&] { t.count(bad, refuse); }, where);
  test::expect_error([&] { t.encode_with_offsets(bad, refuse); }, where);
  StreamEncoder stream(t, refuse);
  test::expect_error(
      [&] {
        Ids out;
        for (size_t at = 0; at < bad.size(); at += 1000) stream.push(std::string_view(bad).substr(at, 1000), out);
        stream.finish(out);
      },
      where);
}

// All names and texts over two letters, against looking at each name at each place.
TEST(SpecialSet, RandomNamesAreFoundAsDefined) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    uint64_t at = 0;
    const auto below = [&](uint64_t n) { return random_below(seed, 0, at++, n); };
    const auto word = [&](size_t longest) {
      std::string s;
      for (size_t n = 1 + below(longest); n > 0; --n) s += "ab<"[below(2 + seed % 2)];
      return s;
    };
    std::vector<std::string> names;
    std::vector<int32_t> ids;
    std::vector<bool> some;
    for (size_t n = 1 + below(12); n > 0; --n)
      if (const std::string name = word(7); std::find(names.begin(), names.end(), name) == names.end()) {
        ids.push_back(static_cast<int32_t>(names.size()) + 5);
        names.push_back(name);
        some.push_back(below(2) == 0);
      }
    const SpecialSet set(names, ids);
    for (size_t i = 0; i < names.size(); ++i) ASSERT_EQ(set.index_of(names[i]), static_cast<int64_t>(i));
    for (int round = 0; round < 50; ++round) {
      const std::string text = word(40);
      for (const std::vector<bool>* only : {static_cast<std::vector<bool>*>(nullptr), &some}) {
        size_t begin = below(text.size()), end = 0;
        const auto from = begin;
        for (; begin < text.size() && end == 0; ++begin)
          for (size_t i = 0; i < names.size(); ++i)
            if ((only == nullptr || some[i]) && std::string_view(text).substr(begin).starts_with(names[i]))
              end = std::max(end, begin + names[i].size());
        const SpecialSet::Match match = set.find(text, from, only);
        ASSERT_EQ(match.end, end == 0 ? text.size() : end) << text;
        ASSERT_EQ(match.begin, end == 0 ? text.size() : begin - 1) << text;
        if (end == 0) continue;
        ASSERT_EQ(names[match.index], text.substr(match.begin, match.end - match.begin));
        ASSERT_EQ(match.id, ids[match.index]);
      }
    }
  }
}

// 400,000 of them are made in no time and cost ordinary text nothing.
TEST(SpecialSet, HundredsOfThousands) {
  const auto seconds = [](const auto& f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<std::string> names;
  for (int i = 0; i < 400'000; ++i) names.push_back(fmt::format("{}word{}", "<[ t"[i % 4], i * 7919LL % 400'000));
  const Tokenizer few = trained({"<|a|>"});
  Tokenizer many;
  const double making = seconds([&] { many = few.with_specials(names); });
  EXPECT_EQ(many.special_id("<word0>"), std::nullopt);
  EXPECT_EQ(many.decode(many.encode("the <word0 and tword399999")), "the <word0 and tword399999");
  EXPECT_TRUE(many.special_id("<word0").has_value());
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += "the cat ate [the] hat <of> the word\n";
  const Ids want = few.encode(text);
  EXPECT_EQ(many.encode(text), want);
  double slowest = 0, fastest = 1e9;
  for (int i = 0; i < 5; ++i) {
    fastest = std::min(fastest, seconds([&] { few.encode(text); }));
    slowest = std::max(slowest, 1e-9 + seconds([&] { many.encode(text); }));
  }
  RecordProperty("making", std::to_string(making));
  RecordProperty("times_slower_at_worst", std::to_string(slowest / fastest));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(making, 8);  // well under 1 s alone on a machine
#endif
}

TEST(EncodeWithOffsets, BytesAndCharacters) {
  const Tokenizer t = trained({"<|a|>"});
  const std::string text = "the \xC3\xA9\xF0\x9F\x99\x83\xFF<|a|>x";
  const EncodedText encoded = t.encode_with_offsets(text);
  EXPECT_EQ(encoded.ids, t.encode(text));
  EXPECT_EQ(encoded.chars, t.char_offsets(encoded.ids));
  int64_t at = 0;
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    EXPECT_EQ(encoded.bytes[i].first, at);
    at = encoded.bytes[i].second;
    EXPECT_EQ(t.token_bytes(encoded.ids[i]), text.substr(static_cast<size_t>(encoded.bytes[i].first),
                                                         static_cast<size_t>(at - encoded.bytes[i].first)));
  }
  EXPECT_EQ(at, static_cast<int64_t>(text.size()));
  EXPECT_EQ(encoded.chars.back(), (std::pair<int64_t, int64_t>(12, 13)));
  EXPECT_TRUE(t.encode_with_offsets("").ids.empty());
  EXPECT_EQ(Tokenizer().encode_with_offsets("\xC3\xA9").chars, (Ranges{{0, 1}, {0, 1}}));
}

TEST(Dropout, DependsOnTextSeedAndProbabilityOnly) {
  const Tokenizer t = trained({"<|a|>"});
  const std::string text = "the cat ate the hat<|a|> of the \xC3\xA9l\xC3\xA9phant";
  EXPECT_EQ(t.encode_with_dropout(text, 0, 3), t.encode(text));
  EXPECT_EQ(t.encode_with_dropout(text, 1, 3).size(), text.size() - 4);  // bytes and one special token
  size_t last = t.encode(text).size();
  for (const double p : {0.1, 0.5, 0.9}) {
    double mean = 0;
    std::vector<Ids> seen;
    for (uint64_t seed = 0; seed < 400; ++seed) {
      const Ids ids = t.encode_with_dropout(text, p, seed);
      ASSERT_EQ(t.decode(ids), text);
      ASSERT_EQ(t.encode_with_dropout(text, p, seed), ids);
      mean += static_cast<double>(ids.size()) / 400;
      if (std::find(seen.begin(), seen.end(), ids) == seen.end()) seen.push_back(ids);
    }
    EXPECT_GT(seen.size(), 10u);
    EXPECT_GT(mean, static_cast<double>(last));
    last = static_cast<size_t>(mean);
  }
  test::expect_error([&] { t.encode_with_dropout(text, 1.5, 3); }, "probability of 1.5");
  test::expect_error([&] { t.encode_with_dropout(text, std::nan(""), 3); }, "probability");
  test::expect_error([&] { Tokenizer().encode_with_dropout(text, 0.1, 3); }, "kind byte");
}

// Two letters and one merge: it is passed over with the probability.
TEST(Dropout, FrequencyOfOneMerge) {
  const std::string_view view = "ababab";
  const Tokenizer t = train_tokenizer({.kind = TokenizerKind::kBpe, .vocab_size = 257, .specials = {}}, {&view, 1});
  int kept = 0;
  for (uint64_t seed = 0; seed < 10000; ++seed) kept += t.encode_with_dropout("ab", 0.3, seed).size() == 1;
  EXPECT_NEAR(kept, 7000, 200);  // 4 standard deviations
}

TEST(Decode, BatchesAndLongTokens) {
  const Tokenizer t = trained({"<|a|>", "<|a special token of more than sixteen bytes|>", std::string(300, 'x')});
  const std::string text = "the<|a special token of more than sixteen bytes|>" + std::string(300, 'x') + " cat";
  const Ids ids = t.encode(text);
  EXPECT_EQ(t.decode(ids), text);
  EXPECT_EQ(t.decode_bytes(ids), text);
  EXPECT_EQ(t.decode_batch(std::vector<Ids>{ids, {}, {0}}), (std::vector<std::string>{text, "", "<|a|>"}));
  test::expect_error([&] { t.decode_batch(std::vector<Ids>{{0}, {-1}}); }, "token id -1 is outside");
}

}  // namespace
}  // namespace tally
