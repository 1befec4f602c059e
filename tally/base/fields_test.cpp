// One visitor gives JSON, flags, help and diff; wrong keys and values are named and change nothing.
#include "tally/base/fields.h"

#include "tests/support/support.h"

namespace tally {
namespace {

struct Optim {
  double lr = 1e-3;
  std::string kind = "adamw";
  void fields(Fields& f) {
    f("lr", lr, "peak learning rate", 0, 10);
    f("kind", kind, "rule", {"adamw", "sgd", "muon"});
  }
};
struct Model {
  int64_t d_model = 64;
  double lr = 2;
  bool bias = true;
  std::vector<std::string> stop = {"a"};
  void fields(Fields& f) {
    f("d_model", d_model, "width", 1, 65536);
    f("lr", lr, "scale of the rate");
    f("bias", bias, "use biases");
    f("stop", stop, "stop strings");
  }
};
struct Config {
  Optim optim;
  Model model;
  int64_t seed = 0;
  void fields(Fields& f) {
    f.group("optim", optim);
    f.group("model", model);
    f("seed", seed, "random seed");
  }
};

TEST(Fields, JsonRoundTrip) {
  Config a;
  EXPECT_EQ(fields_to_json(fields_of(a)).dump(),
            "{\"optim\":{\"lr\":0.001,\"kind\":\"adamw\"},"
            "\"model\":{\"d_model\":64,\"lr\":2.0,\"bias\":true,\"stop\":[\"a\"]},\"seed\":0}");
  fields_from_json(fields_of(a),
                   Json::parse("{\"model\": {\"d_model\": 1e2, \"stop\": [], \"bias\": false}, \"optim\": {\"lr\": 1}, "
                               "\"seed\": -3}",
                               "c.json"),
                   "c.json");
  EXPECT_EQ(a.model.d_model, 100);
  EXPECT_TRUE(a.model.stop.empty());
  EXPECT_FALSE(a.model.bias);
  EXPECT_EQ(a.optim.lr, 1.0);
  EXPECT_EQ(a.seed, -3);
  Config b;
  fields_from_json(fields_of(b), fields_to_json(fields_of(a)), "memory");
  EXPECT_TRUE(fields_diff(fields_of(a), fields_of(b)).empty());
}

TEST(Fields, FindsKeys) {
  Config c;
  const Fields f = fields_of(c);
  EXPECT_EQ(f.find("optim.lr", "--optim.lr").key, "optim.lr");
  EXPECT_EQ(f.find("d-model", "--d-model").key, "model.d_model");
  EXPECT_EQ(f.find("seed", "x").key, "seed");
  test::expect_error([&] { f.find("lr", "FILE"); }, "lr in FILE is ambiguous: optim.lr, model.lr");
  test::expect_error([&] { f.find("optim.lrr", "FILE"); }, "unknown key optim.lrr in FILE; did you mean optim.lr?");
  test::expect_error([&] { f.find("sede", "FILE"); }, "unknown key sede in FILE; did you mean seed?");
  test::expect_error([&] { f.find("d_modell", "FILE"); }, "did you mean d_model?");
  test::expect_error([&] { f.find("zzzzzzzzz", "FILE"); }, "unknown key zzzzzzzzz in FILE");
  test::expect_error([&] { f.find("", "FILE"); }, "unknown key");
}

TEST(Fields, UnknownKeysInJsonAreErrorsAndNothingChanges) {
  Config c;
  const auto load = [&](const char* text) { fields_from_json(fields_of(c), Json::parse(text, "c.json"), "c.json"); };
  test::expect_error([&] { load("{\"seed\": 5, \"optim\": {\"lrr\": 1}}"); },
                     "unknown key optim.lrr in c.json; did you mean optim.lr?");
  test::expect_error([&] { load("{\"seed\": 5, \"optim\": {\"lr\": 11}}"); },
                     "c.json: optim.lr is 11; it must be from 0 to 10");
  test::expect_error([&] { load("{\"seed\": 5, \"optim\": 3}"); }, "c.json: optim must be an object");
  test::expect_error([&] { load("{\"seed\": 5, \"model\": {\"d_model\": {}}}"); },
                     "model.d_model must be a whole number, found an object");
  test::expect_error([&] { load("[]"); }, "must be an object");
  EXPECT_EQ(c.seed, 0);
}

TEST(Fields, ValuesAreChecked) {
  Config c;
  const Fields f = fields_of(c);
  const auto text = [&](const char* key, const char* value) {
    f.find(key, "t").set_text(value, std::string("--") + key);
  };
  text("optim.lr", "3e-4");
  EXPECT_EQ(c.optim.lr, 3e-4);
  text("d_model", "1e3");
  EXPECT_EQ(c.model.d_model, 1000);
  text("bias", "false");
  EXPECT_FALSE(c.model.bias);
  text("stop", "x,,y");
  EXPECT_EQ(c.model.stop, (std::vector<std::string>{"x", "", "y"}));
  text("stop", "");
  EXPECT_TRUE(c.model.stop.empty());
  text("kind", "sgd");
  EXPECT_EQ(c.optim.kind, "sgd");
  text("seed", "-9223372036854775808");
  EXPECT_EQ(c.seed, INT64_MIN);
  test::expect_error([&] { text("kind", "adam"); },
                     "--kind: optim.kind is \"adam\"; it must be one of adamw, sgd, muon; did you mean adamw?");
  test::expect_error([&] { text("d_model", "0"); }, "--d_model: model.d_model is 0; it must be from 1 to 65536");
  test::expect_error([&] { text("d_model", "1.5"); }, "must be a whole number, found 1.5");
  test::expect_error([&] { text("d_model", "12x"); }, "must be a whole number, found \"12x\"");
  test::expect_error([&] { text("seed", "99999999999999999999"); }, "must be a whole number");
  test::expect_error([&] { text("seed", ""); }, "must be a whole number, found \"\"");
  test::expect_error([&] { text("optim.lr", "nan"); }, "it must be a finite number");
  test::expect_error([&] { text("model.lr", "inf"); }, "it must be a finite number");
  test::expect_error([&] { text("bias", "maybe"); }, "must be true or false, found \"maybe\"");
}

TEST(Fields, MessagesAreOneShortLineWhateverTheTextHolds) {
  Config c;
  const auto load = [&](const Json& json) { fields_from_json(fields_of(c), json, "c.json"); };
  test::expect_error([&] { load(Json::object().set("se\ned", 1)); },
                     "unknown key se\\ned in c.json; did you mean seed?");
  test::expect_error([&] { fields_of(c).find("se\ted", "x"); }, "unknown key se\\ted in x; did you mean seed?");
  const std::string text(1'000'000, 'a');
  test::expect_error([&] { load(Json::object().set(text, 1)); }, "aaa... in c.json");
  test::expect_error([&] { load(Json::object().set("seed", text)); }, "aaa...\"");
  const Json kind = Json::object().set("kind", text);
  test::expect_error([&] { load(Json::object().set("optim", kind)); }, "aaa...\"; it must be one of adamw, sgd, muon");
}

TEST(Fields, DiffAndHelp) {
  Config a, b;
  b.optim.lr = 3e-4;
  b.model.stop = {"q"};
  EXPECT_EQ(fields_diff(fields_of(a), fields_of(b)),
            (std::vector<std::string>{"optim.lr 0.001 -> 0.0003", "model.stop [\"a\"] -> [\"q\"]"}));
  const std::string help = fields_help(fields_of(a));
  EXPECT_NE(help.find("--optim.lr NUMBER"), std::string::npos);
  EXPECT_NE(help.find("peak learning rate (0 to 10; default 0.001)"), std::string::npos);
  EXPECT_NE(help.find("rule (adamw, sgd, muon; default \"adamw\")"), std::string::npos);
  EXPECT_NE(help.find("random seed (default 0)"), std::string::npos);
}

TEST(Fields, Nearest) {
  EXPECT_EQ(nearest("optm.lr", {"model.lr", "optim.lr"}), "optim.lr");
  EXPECT_EQ(nearest("xyz", {"abcdef"}), "");
  EXPECT_EQ(nearest("", {"ab", "a"}), "a");
  EXPECT_EQ(nearest("abc", {}), "");
  // Too long for any candidate: without looking at each character.
  EXPECT_EQ(nearest(std::string(100'000'000, 'a'), std::vector<std::string>(1000, "abcdef")), "");
}

}  // namespace
}  // namespace tally
