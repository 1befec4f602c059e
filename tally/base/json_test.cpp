// Reading: every kind, every refusal with its place. Writing: canonical, reads back equal.
#include "tally/base/json.h"

#include <cmath>
#include <limits>

#include "tests/support/support.h"

namespace tally {
namespace {

Json parse(const std::string& text) { return Json::parse(text, "f.json"); }

TEST(Json, Kinds) {
  const Json j =
      parse(R"( {"a": null, "b": true, "c": -5, "d": 2.5, "e": "x\u00e9\ud83d\ude00", "f": [1, []], "g": {}} )");
  EXPECT_TRUE(j.at("a").is_null());
  EXPECT_TRUE(j.at("b").as_bool());
  EXPECT_EQ(j.at("c").as_int(), -5);
  EXPECT_EQ(j.at("c").as_double(), -5.0);
  EXPECT_EQ(j.at("d").as_double(), 2.5);
  EXPECT_EQ(j.at("e").as_string(), "x\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(j.at("f").as_array().size(), 2u);
  EXPECT_TRUE(j.at("g").as_object().empty());
  EXPECT_EQ(j.find("nothing"), nullptr);
}

TEST(Json, Numbers) {
  EXPECT_EQ(parse("9223372036854775807").as_int(), INT64_MAX);
  EXPECT_EQ(parse("-9223372036854775808").as_int(), INT64_MIN);
  EXPECT_FALSE(parse("9223372036854775808").is_int());
  EXPECT_EQ(parse("9223372036854775808").as_double(), 9223372036854775808.0);
  EXPECT_EQ(parse("1e3").as_double(), 1000.0);
  EXPECT_FALSE(parse("1.0").is_int());
  EXPECT_TRUE(std::signbit(parse("-0.0").as_double()));
  test::expect_error([] { parse("1e999"); }, "f.json:1:5: ");
}

TEST(Json, ErrorsHaveFileLineAndColumn) {
  test::expect_error([] { parse("{\n  \"a\": 1,\n  \"b\" 2\n}"); }, "f.json:3:7: ");
  test::expect_error([] { parse(""); }, "f.json:1:1: ");
  test::expect_error([] { parse("   "); }, "f.json:1:");
  test::expect_error([] { parse("[1, 2"); }, "f.json:1:");
  test::expect_error([] { parse("[1] x"); }, "f.json:1:5: ");
  test::expect_error([] { parse("[1]\n\n[2]"); }, "f.json:3:1: ");
  test::expect_error([] { parse("{\"a\": nope}"); }, "f.json:1:");
  test::expect_error([] { parse("[1,]"); }, "f.json:1:4: ");
  test::expect_error([] { parse("'a'"); }, "f.json:1:1: ");
  test::expect_error([] { parse("\"a\nb\""); }, "f.json:");
  test::expect_error([] { parse("nan"); }, "f.json:1:");
}

TEST(Json, RefusesInvalidUtf8) {
  test::expect_error([] { parse("\"\xff\""); }, "f.json:1:2: ");
  test::expect_error([] { parse("\"\xC0\x80\""); }, "f.json:1:");      // overlong
  test::expect_error([] { parse("\"\xED\xA0\x80\""); }, "f.json:1:");  // surrogate
  test::expect_error([] { parse("\"\\ud800\""); }, "f.json:1:");       // half a pair
  test::expect_error([] { parse("\"\xF5\x80\x80\x80\""); }, "f.json:1:");
}

// nlohmann-json takes a NUL for the end of the text.
TEST(Json, RefusesNulBytes) {
  const std::string nul(1, '\0');
  test::expect_error([&] { parse("{}" + nul); }, "f.json:1:3: a NUL byte");
  test::expect_error([&] { parse("{}\n" + nul + "garbage"); }, "f.json:2:1: a NUL byte");
  test::expect_error([&] { parse("[\"a" + nul + "\"]"); }, "f.json:1:4: a NUL byte");
}

TEST(Json, MessagesShowTextOnOneShortLine) {
  EXPECT_EQ(printable("a\nb\t\x7f\xff\""), "a\\nb\\t\\u007f\xEF\xBF\xBD\\\"");
  EXPECT_EQ(in_quotes("x"), "\"x\"");
  EXPECT_EQ(printable(std::string(100, 'a')), std::string(100, 'a'));
  EXPECT_EQ(printable(std::string(101, 'a')), std::string(100, 'a') + "...");
  const std::string cut = std::string(99, 'a') + "\xE2\x82\xAC";  // the limit lies inside the last character
  EXPECT_EQ(printable(cut), std::string(99, 'a') + "...");
  test::expect_error([] { parse("[1" + std::string(5000, '0') + "]"); }, "0...");
  const std::string key(5000, 'k');
  test::expect_error([&] { parse("{\"" + key + "\":1,\"" + key + "\":1}"); }, "kkk...\" stands twice");
}

TEST(Json, RefusesAKeyThatStandsTwice) {
  test::expect_error([] { parse("{\"a\": 1,\n \"a\": 2}"); }, "f.json:2:4: the key \"a\" stands twice");
  test::expect_error([] { parse("[{\"x\": {\"k\": 1, \"j\": 2, \"k\": 3}}]"); }, "the key \"k\" stands twice");
  EXPECT_EQ(parse("[{\"a\": 1}, {\"a\": 2}]").as_array().size(), 2u);
  std::string many = "{";
  for (int i = 0; i < 50'000; ++i) many += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  EXPECT_EQ(parse(many + "\"end\":0}").as_object().size(), 50'001u);
  test::expect_error([&] { parse(many + "\"k49999\":0}"); }, "the key \"k49999\" stands twice");
}

TEST(Json, DepthIsLimited) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(parse(nested(128)).is_array());
  test::expect_error([&] { parse(nested(129)); }, "f.json:1:129: nested deeper than 128");
  test::expect_error([&] { parse(nested(5'000'000)); }, "nested deeper than 128");
  std::string objects;
  for (int i = 0; i < 129; ++i) objects += "{\"a\":";
  test::expect_error([&] { parse(objects); }, "nested deeper than 128");
}

TEST(Json, WrongKindsAreNamed) {
  test::expect_error([] { parse("\"x\"").as_double(); }, "expected a number, found a string");
  test::expect_error([] { parse("1.5").as_int(); }, "expected a whole number, found 1.5");
  test::expect_error([] { parse("[]").as_object(); }, "expected an object, found an array");
  test::expect_error([] { parse("{}").as_string(); }, "expected a string, found an object");
  test::expect_error([] { parse("null").as_bool(); }, "expected a boolean, found null");
  test::expect_error([] { parse("true").as_array(); }, "expected an array, found a boolean");
  test::expect_error([] { parse("{}").at("k"); }, "the key \"k\" is missing");
}

TEST(Json, DumpIsCanonical) {
  const Json j = parse("{ \"z\" : [1, 2.0, -0.0, 1e100], \"a\" : \"q\\u0001\\n\\/\" , \"e\": [], \"o\": {} }");
  EXPECT_EQ(j.dump(), "{\"z\":[1,2.0,-0.0,1e+100],\"a\":\"q\\u0001\\n/\",\"e\":[],\"o\":{}}");
  EXPECT_EQ(j.dump(2),
            "{\n  \"z\": [1,2.0,-0.0,1e+100],\n  \"a\": \"q\\u0001\\n/\",\n"
            "  \"e\": [],\n  \"o\": {}\n}");
  EXPECT_EQ(parse(j.dump(2)), j);
  EXPECT_EQ(parse(j.dump(2)).dump(), j.dump());
}

TEST(Json, DoublesReadBackEqual) {
  for (const double v : {0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, 3e-4, 123456789.125, 1e15, 1e16, 1e17}) {
    const Json back = parse(Json(v).dump());
    EXPECT_FALSE(back.is_int());
    EXPECT_EQ(back.as_double(), v);
  }
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(-std::numeric_limits<double>::infinity()).dump(), "null");
}

TEST(Json, DumpOfBytesThatAreNotUtf8IsStillJson) {
  const std::string bytes = "a\xff\xC3(\xE2\x82\xAC\xED\xA0\x80";
  EXPECT_EQ(parse(Json(bytes).dump()).as_string(),
            "a\xEF\xBF\xBD\xEF\xBF\xBD(\xE2\x82\xAC\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Json, SetReplacesOrAppends) {
  Json j = Json::object();
  j.set("a", 1).set("b", "x").set("a", 2.5);
  Json list = Json::array();
  list.push_back(true);
  j.set("c", list);
  EXPECT_EQ(j.dump(), "{\"a\":2.5,\"b\":\"x\",\"c\":[true]}");
  Json copy = j;
  copy.set("a", 1);
  EXPECT_FALSE(copy == j);
  EXPECT_EQ(j.at("a").as_double(), 2.5);
}

// A small valid text with every byte cut or changed loads or gives a one-line error.
TEST(Json, EveryChangedByteLoadsOrIsRefused) {
  const std::string text = "{\"a\": [1, -2.5e3, \"x\\u00e9\\n\"], \"b\": {\"c\": null, \"d\": true}}";
  int loaded = 0, refused = 0;
  const auto attempt = [&](const std::string& t) {
    try {
      parse(t).dump();
      ++loaded;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      EXPECT_EQ(std::string(e.what()).find("f.json:"), 0u) << e.what();
      ++refused;
    }
  };
  for (size_t i = 0; i < text.size(); ++i) {
    attempt(text.substr(0, i));
    for (int v = 0; v < 256; ++v) {
      std::string changed = text;
      changed[i] = static_cast<char>(v);
      attempt(changed);
    }
  }
  EXPECT_GT(loaded, 500);
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace tally
