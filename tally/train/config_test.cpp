#include "tally/train/config.h"

#include "tests/support/support.h"

namespace tally {
namespace {

using test::expect_error;

TEST(RunConfig, JsonRoundTrip) {
  RunConfig c;
  c.model = preset("llama-30m");
  c.optim.lr = 3e-4, c.optim.weight_decay = 0, c.train.sample_prompt = "a \"b\"\n", c.data.dir = "/x y";
  const Json json = Json::parse(c.to_json().dump(2), "text");
  EXPECT_EQ(json.at("tally_version").as_string(), kTallyVersion);
  RunConfig back = RunConfig::from_json(json, "text");
  EXPECT_TRUE(fields_diff(fields_of(c), fields_of(back)).empty());
  EXPECT_EQ(back.to_json().dump(), c.to_json().dump());
}

// Looking for each key among those before it would take an hour.
TEST(RunConfig, AMillionKeysAreRefusedAtOnce) {
  Json::Object keys;
  for (int i = 0; i < 1'000'000; ++i) keys.emplace_back("k" + std::to_string(i), Json());
  const Json many(std::move(keys));
  expect_error([&] { RunConfig::from_json(many, "run/config.json"); }, "unknown key k0 in run/config.json");
}

TEST(RunConfig, UnknownKeyNamesTheNearest) {
  const Json json = Json::parse(R"({"optim": {"lrr": 1}})", "text");
  expect_error([&] { RunConfig::from_json(json, "run/config.json"); }, "did you mean optim.lr");
  expect_error([&] { RunConfig::from_json(Json::array(), "run/config.json"); }, "must be an object");
}

TEST(RunConfig, CheckNamesBothKeys) {
  RunConfig c;
  c.train.context = 65;
  expect_error([&] { c.check(); }, "train.context 65 is longer than model.context 64");
  c = {};
  c.schedule.warmup = 2000;
  expect_error([&] { c.check(); }, "schedule.warmup 2000 is longer than the run: train.steps 1000");
  c = {};
  c.optim.beta2 = 1;
  expect_error([&] { c.check(); }, "optim.beta2");
  c = {};
  c.model.n_heads = 3;
  expect_error([&] { c.check(); }, "model.d_model");
  c = {};
  c.train.batch = 1 << 20, c.model.context = 1 << 24;
  expect_error([&] { c.check(); }, "too large");
}

TEST(RunConfig, Durations) {
  for (const auto& [text, seconds] : {std::pair("90s", 90.0),
                                      {"5m", 300.0},
                                      {"2h30m", 9000.0},
                                      {"1d12h", 129600.0},
                                      {"0.5h", 1800.0},
                                      {"1h0m1s", 3601.0}})
    EXPECT_EQ(duration_seconds(text), seconds) << text;
  expect_error([] { duration_seconds("5\n"); }, "time_limit is '5\\n'");
  expect_error([] { duration_seconds("1" + std::string(305, '0') + "d"); }, "at most 10000d");  // not finite
  for (const char* bad : {"", "90", "s", "0s", "10001d", "-5m", "5m2h", "5 m", "2h30", "1.2.3s", "nans", "5mm", "."})
    expect_error([&] { duration_seconds(bad); }, "it is written as 90s, 5m, 2h30m or 1d12h");
  RunConfig c;
  c.train.time_limit = "soon";
  expect_error([&] { c.check(); }, "train.time_limit is 'soon'");
}

TEST(RunConfig, OrderOfTheDataIsPartOfTheIdentity) {
  RunConfig a, b;
  b.data.order = "shuffle";
  EXPECT_EQ(first_difference(identity_of(a), identity_of(b)),
            "data.order is \"random\" in the checkpoint and \"shuffle\" here");
}

TEST(RunConfig, IdentityLeavesOutWhatOnlyWatches) {
  RunConfig a, b;
  b.data.dir = "elsewhere", b.train.steps = 7, b.train.log_every = 1, b.train.keep_last = 9, b.train.context = 64;
  EXPECT_EQ(first_difference(identity_of(a), identity_of(b)), "");
  EXPECT_EQ(hash_of(identity_of(a)), hash_of(identity_of(b)));
  b.train.seed = 5;
  EXPECT_EQ(first_difference(identity_of(a), identity_of(b)), "train.seed is 1 in the checkpoint and 5 here");
  b = a;
  b.optim.beta1 = 0.5;
  EXPECT_EQ(first_difference(identity_of(a), identity_of(b)), "optim.beta1 is 0.9 in the checkpoint and 0.5 here");
  EXPECT_NE(hash_of(identity_of(a)), hash_of(identity_of(b)));
}

TEST(RunConfig, IdentityComesBackEqualFromText) {
  RunConfig a;
  a.optim.weight_decay = 0, a.optim.clip = 1, a.model.rope_theta = 1e6;
  const Json identity = identity_of(a);
  EXPECT_EQ(first_difference(Json::parse(identity.dump(1), "text"), identity), "");
}

}  // namespace
}  // namespace tally
