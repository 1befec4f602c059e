#include "tally/train/sample.h"

#include "tests/support/support.h"

namespace tally {
namespace {

using test::expect_error;

// Pushes the text in parts of `n` bytes.
std::string filtered(const std::vector<std::string>& stops, const std::string& text, size_t n,
                     bool* stopped = nullptr) {
  StopFilter filter(stops);
  std::string out;
  for (size_t at = 0; at < text.size(); at += n) out += filter.push(text.substr(at, n));
  out += filter.finish();
  if (stopped) *stopped = filter.stopped();
  return out;
}

TEST(StopFilter, EndsBeforeTheStringWhateverTheParts) {
  for (size_t n = 1; n < 12; ++n) {
    bool stopped = false;
    EXPECT_EQ(filtered({"END"}, "one two ENEND three", n, &stopped), "one two EN");
    EXPECT_TRUE(stopped);
    EXPECT_EQ(filtered({"END", "two"}, "one two END", n), "one ");
    EXPECT_EQ(filtered({"aab"}, "aaaab", n), "aa");
    EXPECT_EQ(filtered({"xyz"}, "ends with xy", n, &stopped), "ends with xy");
    EXPECT_FALSE(stopped);
    EXPECT_EQ(filtered({}, "all of it", n), "all of it");
  }
}

TEST(StopFilter, ShowsNoPartOfAStopString) {
  StopFilter filter({"\n\n"});
  EXPECT_EQ(filter.push("a\n"), "a");
  EXPECT_EQ(filter.push("b\n"), "\nb");
  EXPECT_EQ(filter.push("\nc"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, EmptyStringIsRefused) {
  expect_error([] { StopFilter({""}); }, "stop string is empty");
}

TEST(Sample, TheSameSeedGivesTheSameWholeCharacters) {
  ModelConfig c = preset("tiny");
  const auto model = make_model(c, 3);
  const Tokenizer bytes;
  SampleOptions options;
  options.prompt = "x", options.max_tokens = 150, options.sampler.seed = 5;
  std::string a, b;
  const SampleResult result = generate_text(*model, bytes, options, [&](std::string_view part) { a += part; });
  generate_text(*model, bytes, options, [&](std::string_view part) { b += part; });
  EXPECT_EQ(a, b);
  EXPECT_EQ(result.tokens, 150);
  EXPECT_STREQ(result.finish, "length");
  EXPECT_EQ(Json(a).dump(), Json(b).dump());
  EXPECT_EQ(Json::parse(Json(a).dump(), "text").as_string(), a) << "not UTF-8";
  options.sampler.seed = 6;
  std::string other;
  generate_text(*model, bytes, options, [&](std::string_view part) { other += part; });
  EXPECT_NE(a, other);
}

TEST(Sample, StopStringEndsTheText) {
  const auto model = make_model(preset("tiny"), 3);
  const Tokenizer bytes;
  SampleOptions options;
  options.prompt = "x", options.max_tokens = 100, options.sampler.temperature = 0;
  std::string all;
  generate_text(*model, bytes, options, [&](std::string_view part) { all += part; });
  options.stop = {all.substr(all.size() / 2, 4)};
  std::string cut;
  const SampleResult result = generate_text(*model, bytes, options, [&](std::string_view part) { cut += part; });
  EXPECT_EQ(cut, all.substr(0, all.find(options.stop[0])));
  EXPECT_STREQ(result.finish, "stop");
}

TEST(Sample, EmptyPromptStartsADocument) {
  const Tokenizer bytes;
  EXPECT_EQ(prompt_ids(bytes, ""), (std::vector<int32_t>{'\n'}));
  const Tokenizer with_end = bytes.with_specials({"<|endoftext|>"});
  EXPECT_EQ(prompt_ids(with_end, ""), (std::vector<int32_t>{256}));
  EXPECT_EQ(prompt_ids(bytes, "ab"), (std::vector<int32_t>{'a', 'b'}));
}

}  // namespace
}  // namespace tally
