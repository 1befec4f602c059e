// The Tokenizer value: three kinds, special tokens, streams, threads, training input.
#include "tally/text/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "tally/base/file.h"
#include "tally/base/parallel.h"
#include "tally/base/rng.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kText =
    "The quick brown fox doesn't jump over the lazy dog.\n\nThe fox's den is 12 km away, they'll say;  the d\xC3\xB4g "
    "is \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x99\x83 there.\t\tThe end. <| \n";

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text.append(part);
  return text;
}

Tokenizer train(TokenizerKind kind, int64_t vocab_size, std::vector<std::string> specials,
                std::string_view text = kText) {
  TokenizerSpec spec{kind, vocab_size, std::move(specials), BpeTie::kGreatestBytes};
  return train_tokenizer(spec, {&text, 1});
}

std::vector<Tokenizer> three_kinds() {
  const std::vector<std::string> specials = {"<|x|>", "<|x|><|x|>", "<|y|>"};
  return {train(TokenizerKind::kBpe, 290, specials), train(TokenizerKind::kByte, 0, specials),
          train(TokenizerKind::kChar, 0, specials)};
}

TEST(Tokenizer, RoundTripsEveryKind) {
  for (const Tokenizer& t : three_kinds()) {
    const std::string text = joined({"<|y|>", kText, "<|x|>the<|x|><|x|>end<|x", kText});
    const Ids ids = t.encode(text);
    EXPECT_EQ(t.decode(ids), text) << tokenizer_kind_name(t.kind());
    EXPECT_EQ(ids[0], t.special_id("<|y|>").value());
    EXPECT_EQ(std::count(ids.begin(), ids.end(), *t.special_id("<|x|>")), 1);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), *t.special_id("<|x|><|x|>")), 1);
    EXPECT_EQ(t.encode(""), Ids{});
    EXPECT_FALSE(t.special_id("<|z|>").has_value());
  }
}

TEST(Tokenizer, BpeAndByteTakeAnyBytes) {
  std::string bytes;
  for (size_t i = 0; i < 5000; ++i) bytes += static_cast<char>(random_u32(1, 0, i));
  for (int b = 0; b < 256; ++b) bytes += static_cast<char>(b);
  for (const Tokenizer& t : three_kinds())
    if (t.kind() != TokenizerKind::kChar) {
      EXPECT_EQ(t.decode(t.encode(bytes)), bytes);
    }
  const Tokenizer binary = train(TokenizerKind::kBpe, 300, {}, bytes);
  EXPECT_EQ(binary.decode(binary.encode(kText)), kText);
}

TEST(Tokenizer, SpecialTokensAreTextWhenNotAllowed) {
  for (const Tokenizer& t : three_kinds()) {
    if (t.kind() == TokenizerKind::kChar) continue;  // its vocabulary lacks '>'
    const Ids ids = t.encode("a<|x|>b", false);
    EXPECT_EQ(t.decode(ids), "a<|x|>b");
    EXPECT_EQ(std::count(ids.begin(), ids.end(), *t.special_id("<|x|>")), 0);
  }
}

TEST(Tokenizer, BpeIdsAreSpecialsThenBytesThenMerges) {
  const Tokenizer t = train(TokenizerKind::kBpe, 260, {"<|x|>", "<|y|>"}, "ab ab ab");
  EXPECT_EQ(t.vocab_size(), 260);
  EXPECT_EQ(t.token_bytes(0), "<|x|>");
  EXPECT_EQ(t.token_bytes(1), "<|y|>");
  EXPECT_EQ(t.token_bytes(2), "!");
  EXPECT_EQ(t.token_bytes(258), "ab");
  EXPECT_EQ(t.token_bytes(259), " ab");
  EXPECT_EQ(t.encode("ab ab"), (Ids{258, 259}));
}

TEST(Tokenizer, CharIdsFollowCodePoints) {
  const Tokenizer t = train(TokenizerKind::kChar, 0, {"<|x|>"},
                            "ba<|x|>\xC3\xA9"
                            "a");
  EXPECT_EQ(t.vocab_size(), 4);
  EXPECT_EQ(t.encode("ab\xC3\xA9<|x|>"), (Ids{0, 1, 2, 3}));
  test::expect_error([&] { t.encode("abz"); }, "character \"z\" (U+007A) at byte 2");
  test::expect_error([&] { t.encode("a<|x|>\xC3"); }, "byte 0xc3 at offset 6 is not valid UTF-8");
  test::expect_error([&] { t.encode_parallel("abz"); }, "at byte 2");
}

TEST(Tokenizer, WithSpecialsKeepsKnownIdsAndAppendsTheRest) {
  const Tokenizer t = train(TokenizerKind::kBpe, 300, {"<|x|>"});
  const int32_t n = t.vocab_size();
  const Tokenizer more = t.with_specials({"<|new|>", "<|x|>"});
  EXPECT_EQ(more.special_id("<|x|>"), t.special_id("<|x|>"));
  EXPECT_EQ(more.special_id("<|new|>"), n);
  EXPECT_EQ(more.encode("<|x|><|new|>"), (Ids{0, n}));
  EXPECT_NE(more.hash(), t.hash());
  EXPECT_EQ(t.with_specials({}).decode(t.with_specials({}).encode("<|x|>")), "<|x|>");
  EXPECT_GT(t.with_specials({}).encode("<|x|>").size(), 1u);
}

TEST(Tokenizer, WithSpecialsOfByteAndChar) {
  for (const Tokenizer& t : three_kinds()) {
    if (t.kind() == TokenizerKind::kBpe) continue;
    const Tokenizer more = t.with_specials({"<|new|>", "<|y|>", "<|x|>", "<|x|><|x|>"});
    EXPECT_EQ(more.special_id("<|new|>"), t.vocab_size());
    EXPECT_EQ(more.special_id("<|y|>"), t.special_id("<|y|>"));
    const test::TempFolder folder;
    more.save(folder.path());
    EXPECT_EQ(Tokenizer::load(folder.path()).hash(), more.hash());
    test::expect_error([&] { t.with_specials({}); }, "cannot become ordinary text");
  }
  test::expect_error([] { Tokenizer().with_specials({"a"}); }, "single byte");
}

TEST(Tokenizer, SpecialsThatReadLikeOtherEntriesAreErrors) {
  test::expect_error([] { train(TokenizerKind::kBpe, 300, {"a"}); }, "reads like another entry");
  const Tokenizer chars = train(TokenizerKind::kChar, 0, {"b"}, "abc");  // all its occurrences are the special token
  EXPECT_EQ(chars.encode("abc"), (Ids{0, 2, 1}));
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreErrors) {
  for (const Tokenizer& t : three_kinds()) {
    for (const int32_t id : {-1, t.vocab_size(), INT32_MAX, INT32_MIN}) {
      test::expect_error([&] { t.decode(Ids{0, id}); }, "outside the vocabulary");
      test::expect_error([&] { StreamDecoder(t).push(id); }, "outside the vocabulary");
      test::expect_error([&] { t.token_bytes(id); }, "outside the vocabulary");
    }
  }
}

// Case O21: bytes without merges; each byte of a character covers the whole character.
TEST(Tokenizer, O21CharacterOffsets) {
  const Tokenizer t;
  const Ids ids = t.encode("i \xE2\xAD\xA2 j");
  EXPECT_EQ(t.char_offsets(ids),
            (std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 2}, {2, 3}, {2, 3}, {2, 3}, {3, 4}, {4, 5}}));
}

TEST(Tokenizer, StreamEncodeEqualsWholeTextAtEveryChunkSize) {
  const std::string text = joined({"<|x|>", kText, "\n\n\nx<|x|><|x|><|x|>  <|y|", kText, "\xC3\xB4<|y|>'ll \n\n"});
  for (const Tokenizer& t : three_kinds()) {
    for (const bool allow_special : {true, false}) {
      if (t.kind() == TokenizerKind::kChar && !allow_special) continue;
      const Ids whole = t.encode(text, allow_special);
      StreamEncoder stream(t, allow_special);
      for (size_t chunk = 1; chunk <= 64; ++chunk) {
        Ids ids;
        for (size_t i = 0; i < text.size(); i += chunk) stream.push(std::string_view(text).substr(i, chunk), ids);
        stream.finish(ids);
        ASSERT_EQ(ids, whole) << tokenizer_kind_name(t.kind()) << " chunk " << chunk;
      }
    }
  }
}

// All texts of up to 7 symbols in every cut into two chunks and byte by byte.
TEST(Tokenizer, StreamEncodeOfEveryShortText) {
  const Tokenizer t = train(TokenizerKind::kBpe, 262, {"ab", "abc"}, "aa\n\n aa\n\n aa").with_specials({"ab", "abc"});
  const std::vector<std::string> symbols = {"a", "b", "c", "\n", " ", "\xC2\xA0"};
  std::vector<std::string> texts = {""};
  for (size_t done = 0; done < texts.size(); ++done)
    if (texts[done].size() < 6)
      for (const std::string& s : symbols) texts.push_back(texts[done] + s);
  for (const std::string& text : texts) {
    const Ids whole = t.encode(text);
    StreamEncoder stream(t);
    Ids ids;
    for (const char c : text) stream.push({&c, 1}, ids);
    stream.finish(ids);
    ASSERT_EQ(ids, whole) << text;
  }
}

TEST(Tokenizer, StreamEncodeHoldsLittleAndReportsOffsets) {
  const Tokenizer t = train(TokenizerKind::kBpe, 300, {"<|x|>"});
  StreamEncoder stream(t);
  Ids ids;
  size_t given = 0;
  for (int i = 0; i < 2000; ++i) stream.push("the lazy dog ", ids);
  for (const int32_t id : ids) given += t.token_bytes(id).size();
  EXPECT_GT(given, 2000 * 13 - 64u);
  StreamEncoder chars(train(TokenizerKind::kChar, 0, {}, "ab"));
  test::expect_error(
      [&] {
        chars.push("abab", ids);
        chars.push("aZ", ids);
      },
      "at byte 5");
}

TEST(Tokenizer, StreamDecodeNeverSplitsACharacter) {
  const Tokenizer t;
  const std::string text = "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x99\x83z\xE2\x82 \xFF\xC3";
  StreamDecoder stream(t);
  std::string all;
  for (const int32_t id : t.encode(text)) {
    const std::string part = stream.push(id);
    std::string none;
    for (size_t i = 0; i < part.size();) {
      ASSERT_NE(static_cast<unsigned char>(part[i]) & 0xC0, 0x80);
      i += static_cast<unsigned char>(part[i]) < 0x80   ? 1
           : static_cast<unsigned char>(part[i]) < 0xE0 ? 2
           : static_cast<unsigned char>(part[i]) < 0xF0 ? 3
                                                        : 4;
      ASSERT_LE(i, part.size());
    }
    all += part;
  }
  all += stream.finish();
  EXPECT_EQ(all, t.decode_text(t.encode(text)));
  EXPECT_EQ(all, "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x99\x83z\xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Tokenizer, EncodeParallelEqualsSerial) {
  std::string text;
  for (int i = 0; text.size() < (3u << 20); ++i)
    text += joined({kText, i % 7 == 0 ? "<|x|><|x|>" : "", i % 501 == 0 ? std::string(9000, 'a') : ""});
  const int before = num_threads();
  for (const Tokenizer& t : three_kinds()) {
    const Ids serial = t.encode(text);
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      ASSERT_EQ(t.encode_parallel(text), serial) << tokenizer_kind_name(t.kind());
    }
  }
  set_num_threads(before);
}

TEST(Tokenizer, SharedByThreads) {
  const Tokenizer t = train(TokenizerKind::kBpe, 300, {"<|x|>"});
  const Ids expected = t.encode(kText);
  const std::string hash = train(TokenizerKind::kBpe, 300, {"<|x|>"}).hash();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i, copy = t] {
      for (int k = 0; k < 200; ++k) wrong[i] += copy.encode(kText) != expected || copy.hash() != hash;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::vector<int>{0, 0, 0, 0}));
}

TEST(TokenizerTrain, VocabularyTooSmallNamesTheLeast) {
  test::expect_error([] { train(TokenizerKind::kBpe, 256, {"<|x|>"}); }, "at least 257");
  test::expect_error([] { train(TokenizerKind::kBpe, -5, {}); }, "at least 256");
  test::expect_error([] { train(TokenizerKind::kBpe, INT64_MAX, {}); }, "larger than token ids");
  test::expect_error([] { train(TokenizerKind::kChar, 3, {"<|x|>"}, "abc"); }, "at least 4");
  test::expect_error([] { train(TokenizerKind::kByte, 300, {"<|x|>"}); }, "257 in all");
  EXPECT_EQ(train(TokenizerKind::kBpe, 257, {"<|x|>"}).vocab_size(), 257);
}

TEST(TokenizerTrain, StopsWhenNoPairIsLeft) {
  EXPECT_EQ(train(TokenizerKind::kBpe, 1000, {}, "abc").vocab_size(), 258);
  EXPECT_EQ(train(TokenizerKind::kBpe, 1000, {"<|x|>"}, "<|x|>").vocab_size(), 257);
}

TEST(TokenizerTrain, BadInputIsOneClearError) {
  const test::TempFolder folder;
  const auto train_files = [](TokenizerKind kind, std::vector<std::filesystem::path> files) {
    return train_tokenizer_files({kind, kind == TokenizerKind::kBpe ? 300 : 0, {}, BpeTie::kGreatestBytes}, files);
  };
  write_file_atomic(folder / "empty.txt", "");
  write_file_atomic(folder / "binary.bin", std::string("ab\0\xFF\xFE"
                                                       "ab\0",
                                                       9));
  for (const TokenizerKind kind : {TokenizerKind::kBpe, TokenizerKind::kByte, TokenizerKind::kChar}) {
    test::expect_error([&] { train_files(kind, {folder / "missing.txt"}); }, "missing.txt");
    test::expect_error([&] { train_files(kind, {folder.path()}); }, folder.path().filename().string());
    test::expect_error([&] { train_files(kind, {folder / "empty.txt"}); }, "no text");
    test::expect_error([&] { train_files(kind, {}); }, "no input file");
  }
  const Tokenizer binary = train_files(TokenizerKind::kBpe, {folder / "empty.txt", folder / "binary.bin"});
  EXPECT_EQ(binary.decode(binary.encode(std::string_view("\0\xFF", 2))), std::string_view("\0\xFF", 2));
  test::expect_error([&] { train_files(TokenizerKind::kChar, {folder / "binary.bin"}); },
                     "binary.bin: byte 0xff at offset 3");
}

TEST(TokenizerTrain, OneHugeLine) {
  std::string line;
  while (line.size() < (5u << 20)) line += "abc abd 12 ";
  const Tokenizer t = train(TokenizerKind::kBpe, 262, {}, line);
  EXPECT_EQ(t.token_bytes(256), "ab");
  EXPECT_EQ(t.token_bytes(257), " ab");
  const Tokenizer run = train(TokenizerKind::kBpe, 258, {}, std::string(2u << 20, 'x'));
  EXPECT_EQ(run.token_bytes(257), "xxxx");
}

}  // namespace
}  // namespace tally
