// The accounts: costs by phase, scope and op; live bytes, their peak and its moment; the hardware model and its cache.
#include "tally/core/ledger.h"

#include <cstdlib>
#include <thread>

#include "tally/core/hardware.h"
#include "tally/core/saved.h"
#include "tally/core/tensor.h"
#include "tally/core/timeline.h"
#include "tests/support/support.h"

namespace tally {
namespace {

constexpr const char* kOp = "matmul";
constexpr const char* kOther = "add";

TEST(Ledger, RepeatedPartsAreALoop) {
  const Cost a{8, 4, 2, 1, 0}, b{1, 2, 3, 4, 5};
  const auto part = [&](Ledger& l) {
    PhaseGuard phase("forward");
    l.spend("a", a);
    ScopeGuard scope("inner");
    l.spend("b", b), l.spend("b", b);
  };
  const LedgerGuard loop;
  loop.ledger().spend("a", b);
  for (int i = 0; i < 7; ++i) part(loop.ledger());
  const LedgerGuard once;
  once.ledger().spend("a", b);
  const Ledger::Mark mark = once.ledger().mark();
  part(once.ledger());
  once.ledger().repeat_since(mark, 6);
  const auto want = loop.ledger().entries(), got = once.ledger().entries();
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(want[i].cost == got[i].cost) << i;
    EXPECT_EQ(want[i].launches, got[i].launches);
  }
}

TEST(Ledger, CostsByPhaseScopeAndOp) {
  LedgerGuard guard;
  Ledger& l = guard.ledger();
  {
    PhaseGuard forward("forward");
    ScopeGuard block(std::string("blocks.0"));
    for (int i = 0; i < 3; ++i) {
      ScopeGuard attn("attn");
      l.spend(kOp, {10, 1, 2, 3, 0});
    }
    l.spend(kOther, {0, 5, 6, 7, 0});
  }
  {
    PhaseGuard backward("backward");
    ScopeGuard block("blocks.0");
    ScopeGuard attn("attn");
    l.spend(kOp, {20, 2, 4, 6, 9});
  }
  l.spend(kOther, {0, 1, 0, 0, 0});
  const std::vector<Ledger::Entry> all = l.entries();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_STREQ(all[0].op, "matmul");
  EXPECT_EQ(all[0].phase, "forward");
  EXPECT_EQ(all[0].scope, "blocks.0/attn");
  EXPECT_EQ(all[0].launches, 3);
  EXPECT_EQ(all[0].cost, (Cost{30, 3, 6, 9, 0}));
  EXPECT_EQ(all[1].scope, "blocks.0");
  EXPECT_EQ(all[2].phase, "backward");
  EXPECT_EQ(all[3].scope, "");
  EXPECT_EQ(all[3].phase, "");
  EXPECT_EQ(l.cost(), (Cost{50, 11, 16, 22, 9}));
  EXPECT_EQ(l.cost("forward"), (Cost{30, 8, 12, 16, 0}));
  EXPECT_EQ(l.cost("no such phase"), Cost{});
  EXPECT_EQ(l.launches(), 6);
  l.clear_costs();
  EXPECT_EQ(l.cost(), Cost{});
  EXPECT_TRUE(l.entries().empty());
}

TEST(Ledger, TimelineHoldsTheHighestStateBetweenLaunches) {
  LedgerGuard guard;
  Ledger& l = guard.ledger();
  l.charge(Category::kParameter, 100);
  Timeline timeline(l.live());
  l.set_timeline(&timeline);
  {
    PhaseGuard forward("forward");
    l.charge(Category::kActivation, 50);
    l.charge(Category::kActivation, -50);
    l.charge(Category::kActivation, 20);
    l.spend(kOp, {});
  }
  {
    PhaseGuard backward("backward");
    l.charge(Category::kActivation, -20);
    l.spend(kOp, {});
    l.spend(kOther, {});
    l.charge(Category::kGradient, 7);
  }
  l.set_timeline(nullptr);
  l.charge(Category::kActivation, 1000);
  timeline.finish();
  const Json j = timeline.to_json();
  EXPECT_EQ(j.at("unit").as_string(), "launches");
  EXPECT_EQ(j.at("edges").dump(), "[0.0,1.0,2.0,3.0]");
  EXPECT_EQ(j.at("bytes").dump(), R"({"parameter":[100,100,100],"gradient":[0,0,7],"activation":[50,20,0]})");
  EXPECT_EQ(j.at("phases").dump(),
            R"([{"phase":"forward","from":0.0,"to":1.0},{"phase":"backward","from":1.0,"to":3.0}])");
}

TEST(Ledger, ALongTimelineIsThinnedAndKeepsItsPeak) {
  LedgerGuard guard;
  Ledger& l = guard.ledger();
  Timeline timeline(l.live(), 64);
  l.set_timeline(&timeline);
  for (int i = 0; i < 100000; ++i) {
    const int64_t bytes = i == 54321 ? 999 : i % 10;
    l.charge(Category::kActivation, bytes);
    l.spend(kOp, {});
    l.charge(Category::kActivation, -bytes);
  }
  l.set_timeline(nullptr);
  timeline.finish();
  int64_t highest = 0, launches = 0;
  for (const Timeline::Moment& m : timeline.moments())
    highest = std::max(highest, total(m.live)), launches += m.launches;
  EXPECT_EQ(highest, l.peak_bytes());
  EXPECT_LE(timeline.moments().size(), 64u);
  EXPECT_GE(timeline.moments().size(), 32u);
  EXPECT_EQ(launches, 100000);
}

TEST(Ledger, AScopeIsOnePathHoweverOftenItIsEntered) {
  LedgerGuard guard;
  Ledger& l = guard.ledger();
  const int a = l.enter(0, "a"), b = l.enter(a, "b");
  EXPECT_EQ(l.enter(0, "a"), a);
  EXPECT_EQ(l.enter(a, "b"), b);
  EXPECT_NE(l.enter(0, "b"), b);
  EXPECT_EQ(l.scope_path(b), "a/b");
  EXPECT_EQ(l.scope_path(0), "");
}

TEST(Ledger, GuardsNestAndRestore) {
  LedgerGuard outer;
  outer.ledger().spend(kOp, {1, 0, 0, 0, 0});
  {
    LedgerGuard inner;
    Ledger::current().spend(kOp, {100, 0, 0, 0, 0});
    EXPECT_EQ(inner.ledger().cost().matmul_flops, 100);
  }
  Ledger::current().spend(kOp, {2, 0, 0, 0, 0});
  EXPECT_EQ(outer.ledger().cost().matmul_flops, 3);
  EXPECT_EQ(outer.ledger().scope(), 0);
}

TEST(Ledger, PeakItsCategoriesAndItsMoment) {
  LedgerGuard guard;
  Ledger& l = guard.ledger();
  const auto at = [](const CategoryBytes& b, Category c) { return b[static_cast<size_t>(c)]; };
  const Tensor p = Tensor::empty(Dims(1024), DType::kU8, kMetaCpu, Category::kParameter);
  {
    PhaseGuard phase("backward");
    ScopeGuard scope("blocks.1");
    ScopeGuard inner("mlp");
    const Tensor a = Tensor::empty(Dims(512), DType::kU8, kMetaCpu);
    const Tensor g = Tensor::empty(Dims(256), DType::kU8, kMetaCpu, Category::kGradient);
  }
  EXPECT_EQ(l.live_bytes(), 1024);
  EXPECT_EQ(l.peak_bytes(), 1024 + 512 + 256);
  EXPECT_EQ(l.peak_moment(), "backward blocks.1/mlp");
  EXPECT_EQ(at(l.at_peak(), Category::kParameter), 1024);
  EXPECT_EQ(at(l.at_peak(), Category::kActivation), 512);
  EXPECT_EQ(at(l.at_peak(), Category::kGradient), 256);
  EXPECT_EQ(total(l.at_peak()), l.peak_bytes());
  l.reset_peak();
  EXPECT_EQ(l.peak_bytes(), 1024);
  EXPECT_EQ(l.peak_moment(), "");
  const Json j = l.to_json();
  EXPECT_EQ(j.at("peak_bytes").as_int(), 1024);
  EXPECT_EQ(j.at("peak_by_category").at("parameter").as_int(), 1024);
}

TEST(Ledger, ATensorGivesBackToTheLedgerItWasChargedTo) {
  Ref<Ledger> made(new Ledger);
  Tensor kept;
  {
    LedgerGuard guard(made);
    kept = Tensor::empty(Dims(256), DType::kU8, kMetaCpu);
  }
  LedgerGuard other;
  EXPECT_EQ(made->live_bytes(), 256);
  kept = {};
  EXPECT_EQ(made->live_bytes(), 0);
  EXPECT_EQ(other.ledger().live_bytes(), 0);
}

// Tensors are made here and freed on other threads, while this one makes and frees its own.
TEST(Ledger, TensorsFreedOnOtherThreads) {
  const LedgerGuard guard;
  const Ledger& ledger = guard.ledger();
  constexpr int kThreads = 4, kEach = 2000;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<Tensor>> given(kThreads);
    for (std::vector<Tensor>& all : given)
      for (int i = 0; i < kEach; ++i) all.push_back(Tensor::empty(Dims(256), DType::kU8, kMetaCpu));
    EXPECT_EQ(ledger.live_bytes(), kThreads * kEach * 256);
    std::vector<std::thread> threads;
    threads.reserve(given.size());
    for (std::vector<Tensor>& all : given)
      threads.emplace_back([&all] {
        const LedgerGuard own;
        for (Tensor& t : all) {
          const Saved kept(t, 0);
          t = Tensor::empty(Dims(512), DType::kU8, kMetaCpu);  // of the other ledger
        }
        all.clear();
        EXPECT_EQ(own.ledger().live_bytes(), 0);
      });
    for (int i = 0; i < kEach; ++i) {
      const Tensor mine = Tensor::empty(Dims(1024), DType::kU8, kMetaCpu);
      EXPECT_GE(ledger.live_bytes(), 1024);
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(ledger.live_bytes(), 0);
    EXPECT_EQ(total(ledger.saved()), 0);
  }
  EXPECT_LE(ledger.peak_bytes(), kThreads * kEach * 256 + 1024);
}

Hardware machine() {
  Hardware h;
  h.name = "test cpu v3 2 threads";
  h.fma_flops = 200, h.other_flops = 10, h.launch_seconds = 0.25;
  h.matmul.points = {{100, 50}, {10000, 100}};
  h.bytes.points = {{50, 50}, {200, 20}};
  h.step_matmul = h.matmul, h.step_bytes = h.bytes;
  return h;
}

// Launch + matmul + the longer of other FLOPs and bytes.
TEST(Hardware, PredictsFromTheRoofline) {
  const Hardware h = machine();
  EXPECT_DOUBLE_EQ(h.predict({}), 0.25);
  EXPECT_DOUBLE_EQ(h.predict({50, 0, 0, 0, 0}), 0.25 + 1);              // below the first point: its rate
  EXPECT_DOUBLE_EQ(h.predict({1000, 0, 0, 0, 0}), 0.25 + 1000 / 75.0);  // half way by the logarithm
  EXPECT_DOUBLE_EQ(h.predict({20000, 0, 0, 0, 0}), 0.25 + 200);         // beyond the last
  EXPECT_DOUBLE_EQ(h.predict({0, 30, 40, 10, 0}), 0.25 + 3);
  EXPECT_DOUBLE_EQ(h.predict({50, 30, 40, 10, 0}), 0.25 + 1 + 3);
  EXPECT_DOUBLE_EQ(h.predict({0, 1, 40, 10, 0}), 0.25 + 1);     // 50 bytes come from cache
  EXPECT_DOUBLE_EQ(h.predict({0, 1, 100, 100, 0}), 0.25 + 10);  // 200 do not
  Hardware step = h;                                            // the rates of a step come before the peaks
  step.step_matmul.points = {{100, 25}}, step.step_bytes.points = {{50, 10}};
  EXPECT_DOUBLE_EQ(step.predict({50, 1, 40, 10, 0}), 0.25 + 2 + 5);
  Hardware card = h;  // the longest alone
  card.overlaps = true;
  EXPECT_DOUBLE_EQ(card.predict({}), 0.25);
  EXPECT_DOUBLE_EQ(card.predict({0, 1, 4, 1, 0}), 0.25);       // shorter than a launch
  EXPECT_DOUBLE_EQ(card.predict({50, 30, 40, 10, 0}), 1 + 3);  // 1 for the bytes
  EXPECT_DOUBLE_EQ(card.predict({50, 30, 100, 100, 0}), 10);
  EXPECT_EQ(Hardware::from_json(card.to_json()).to_json(), card.to_json());
  EXPECT_TRUE(Hardware::from_json(card.to_json()).overlaps);
  EXPECT_FALSE(Hardware::from_json(h.to_json()).overlaps);
  LedgerGuard guard;
  guard.ledger().spend(kOp, {200, 0, 0, 0, 0});
  EXPECT_EQ(guard.ledger().predicted_seconds(), 0);
  guard.ledger().set_hardware(&h);
  guard.ledger().spend(kOp, {50, 0, 0, 0, 0});
  EXPECT_DOUBLE_EQ(guard.ledger().predicted_seconds(), 1.25);
}

TEST(Hardware, IsCachedByNameAndABadCacheCountsAsNone) {
  const test::TempFolder folder;
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string saved = before ? before : "";
  unsetenv("TALLY_CACHE");  // it goes first
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  EXPECT_FALSE(cached_hardware("test cpu v3 2 threads"));
  cache_hardware(machine());
  Hardware other = machine();
  other.name = "another", other.launch_seconds = 0.5;
  cache_hardware(other);
  other.launch_seconds = 0.75;
  cache_hardware(other);
  ASSERT_TRUE(cached_hardware("another"));
  EXPECT_EQ(cached_hardware("another")->launch_seconds, 0.75);
  EXPECT_EQ(cached_hardware("test cpu v3 2 threads")->to_json(), machine().to_json());
  for (const char* text : {"", "{", "{}", "[1, {\"name\": \"another\"}]", "[{\"name\": 3}]"}) {
    write_file_atomic(hardware_cache_path(), text);
    EXPECT_FALSE(cached_hardware("another")) << text;
    cache_hardware(other);
    EXPECT_TRUE(cached_hardware("another")) << text;
  }
  Json zero = machine().to_json();
  zero.set("fma_flops", 0);
  test::expect_error([&] { Hardware::from_json(zero); }, "a rate is not positive");
  Json falling = machine().to_json();
  falling.set("bytes", Json(Json::Array{Json::object().set("work", 2.0).set("rate", 1.0),
                                        Json::object().set("work", 1.0).set("rate", 1.0)}));
  test::expect_error([&] { Hardware::from_json(falling); }, "a curve is not rising");
  if (before)
    setenv("XDG_CACHE_HOME", saved.c_str(), 1);
  else
    unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace tally
