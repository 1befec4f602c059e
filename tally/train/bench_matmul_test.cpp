#include "tally/train/bench_matmul.h"

#include <set>

#include "tests/support/support.h"

namespace tally {
namespace {

TEST(BenchMatmul, CasesAreALinearsThreeProducts) {
  const std::vector<MatmulCase> all = matmul_cases(64);
  for (size_t i = 0; i < all.size(); i += 3) {
    const MatmulCase &y = all[i], &dx = all[i + 1], &dw = all[i + 2];
    EXPECT_TRUE(y.name == dx.name && y.name == dw.name);
    EXPECT_EQ(y.m, 64);
    EXPECT_TRUE(dx.m == y.m && dx.n == y.k && dx.k == y.n) << y.name;
    EXPECT_TRUE(dw.m == y.n && dw.n == y.k && dw.k == y.m) << y.name;
    EXPECT_EQ(y.flops(), dw.flops());
  }
  EXPECT_EQ(matmul_cases(0)[0].m, 65536);
  // All products of a step of GPT-2 124M but those of attention: 6 FLOPs a weight and token, 12 layers and the head.
  double flops = 0;
  for (const MatmulCase& c : matmul_cases(0))
    if (c.name.starts_with("gpt2")) flops += c.flops() * (c.name == "gpt2 head" ? 1 : 12);
  EXPECT_EQ(flops, 6.0 * 65536 * (12 * 12 * 768 * 768 + 50304 * 768));
}

TEST(BenchMatmul, ShapesAsWritten) {
  const MatmulCase c = matmul_case_of("4096x2x30");
  EXPECT_TRUE(c.m == 4096 && c.n == 2 && c.k == 30);
  for (const char* bad :
       {"", "4096", "4096x2", "1x2x3x4", "0x1x1", "-1x1x1", "1x1x99999999999", "axbxc", "1x2x3 ", "1 x2x3"})
    test::expect_error([&] { matmul_case_of(bad); }, "it is written as MxNxK");
}

TEST(BenchMatmul, RunsEveryPass) {
  std::vector<MatmulResult> all;
  for (MatmulCase c : matmul_cases(8)) {
    if (c.name != "llama kv") continue;
    for (const char* dtype : {"f32", "bf16"}) {
      all.push_back(bench_matmul(c, dtype, kCpu, 2));
      EXPECT_GT(all.back().share_of_peak(), 0);
    }
  }
  ASSERT_EQ(all.size(), 6u);
  const MatmulResult plain = bench_matmul({"large", MatmulCase::Pass::kPlain, 5, 6, 7}, "f32", kCpu, 1);
  EXPECT_EQ(matmul_json(plain).at("pass").as_string(), "ab");
  EXPECT_GT(matmul_json(plain).at("seconds").as_double(), 0);
  const std::string text = matmul_text(all);
  EXPECT_NE(text.find("llama kv      dw    256 x 1024 x 8          bf16"), std::string::npos) << text;
  EXPECT_NE(text.find("(measured), bf16"), std::string::npos) << text;
  test::expect_error(
      [] {
        bench_matmul({"x", MatmulCase::Pass::kForward, 1, 1, 1}, "tf32", kCpu, 1);
      },
      "tf32 is of CUDA");
}

}  // namespace
}  // namespace tally
