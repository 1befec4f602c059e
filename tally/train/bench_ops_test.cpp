#include "tally/train/bench_ops.h"

#include <gtest/gtest.h>

#include <set>

#include "tally/core/tape.h"

namespace tally {
namespace {

OpResult result(const std::string& op, double seconds, double roof) {
  OpResult r;
  r.op = op, r.phase = "forward", r.name = op, r.shape = "8 x 8", r.size = "cache";
  r.seconds = seconds, r.roof_seconds = roof, r.launches = 1, r.peak_flops = 4e9, r.copy_bytes = 2e9;
  r.cost = {3'000'000'000, 1'000'000'000, 500'000'000, 500'000'000};
  return r;
}

TEST(BenchOps, TableHasRatesAndNamesTheWorst) {
  const std::vector<OpResult> all = {result("one", 2, 1), result("two", 4, 1), result("three", 1, 0.1),
                                     result("four", 1, 1)};
  const std::string text = ops_text(all);
  EXPECT_NE(text.find("2 s      2.0     0.5     2.0    50 %"), std::string::npos) << text;
  EXPECT_NE(text.find("peak 4.0 GFLOP/s"), std::string::npos) << text;
  EXPECT_NE(
      text.find("furthest from the roof: three (three 8 x 8, 10 %), two (two 8 x 8, 25 %), one (one 8 x 8, 50 %)"),
      std::string::npos)
      << text;
  EXPECT_EQ(worst_ops(all, 9).size(), 4u);
  EXPECT_EQ(ops_text({}).find("furthest"), std::string::npos);
}

TEST(BenchOps, CasesCoverEveryKernel) {
  std::set<std::string> seen;
  const BenchBudget once{0, 1, true};
  for (const OpCase& c : op_cases()) {
    const bool small = c.size == "cache" || c.shape == "512 x 512 x 512" || c.shape.starts_with("1 x 1 x 12");
    if (!small && c.op != "attention") continue;
    for (const OpResult& r : bench_op(c, once)) {
      seen.insert(r.op);
      EXPECT_GT(r.seconds, 0) << c.op;
      EXPECT_GT(r.call_seconds, 0) << c.op;
      EXPECT_GT(r.roof_seconds, 0) << c.op;
      EXPECT_EQ(r.rounds, 1) << c.op;
      EXPECT_EQ(op_json(r).at("case").as_string(), c.op);
    }
  }
  for (const KernelRow& row : kernel_matrix())
    if (!std::string(row.name).ends_with("_probe")) {
      EXPECT_TRUE(seen.contains(row.name)) << row.name;
    }
}

TEST(BenchOps, CostIsOfOneCallWhateverTheRounds) {
  const std::vector<OpCase> all = op_cases();
  const OpCase& norm = all.front();
  ASSERT_EQ(norm.op, "rms_norm");
  const std::vector<OpResult> one = bench_op(norm, {0, 1, true}), three = bench_op(norm, {0, 3, true});
  ASSERT_EQ(one.size(), three.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].cost, three[i].cost);
    EXPECT_EQ(one[i].launches, three[i].launches);
  }
  EXPECT_EQ(bench_op(norm, {0, 1, false}).size(), 1u);  // the forward alone
  EXPECT_FALSE(NoGrad::active());
}

TEST(BenchOps, ReadProbeReadsEveryNumberOnce) {
  const LedgerGuard guard;
  ReadProbe probe(int64_t{3} << 20);
  guard.ledger().clear_costs();
  EXPECT_GT(probe.seconds(), 0);
  EXPECT_EQ(guard.ledger().cost().bytes_read, static_cast<int64_t>(probe.bytes()));
  EXPECT_EQ(probe.bytes(), 3 << 20);
}

// The kernel's sum is that of the numbers: it has read them all, at lengths that fill no vector too.
TEST(BenchOps, ReadProbeSums) {
  for (const int64_t n : {int64_t{1}, int64_t{1000}, ReadProbeArgs::kPiece, 2 * ReadProbeArgs::kPiece + 129}) {
    const Tensor x = bench_values(Dims(n), 5);
    const Tensor out = bench_values(Dims((n + ReadProbeArgs::kPiece - 1) / ReadProbeArgs::kPiece), 6);
    launch(&Kernels::read_probe, ReadProbeArgs{x.raw(), out.raw()});
    double want = 0, got = 0;
    for (const double v : x.to_vector()) want += v;
    for (const double v : out.to_vector()) got += v;
    EXPECT_NEAR(got, want, 1e-6 * static_cast<double>(n) + 1e-6) << n;
  }
}

}  // namespace
}  // namespace tally
