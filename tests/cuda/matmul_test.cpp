// What is cuBLASLt's own: the search for algorithms and its file, products in a captured graph, tf32.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tally/base/file.h"
#include "tally/core/device.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"
#include "tally/ops/matmul_choices.h"
#include "tally/ops/op_test.h"
#include "tests/support/support.h"

namespace tally {
namespace {

class Variable {  // of the environment, for as long as it lives
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before, was_set_ = true;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { was_set_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string before_;
  bool was_set_ = false;
};

// c = 1 + a b on the CPU and, once there, on the card.
struct Product {
  Product(int64_t m, int64_t n, int64_t k, DType dtype, DType result)
      : a(test::random_tensor({Dims(1, m, k)}, dtype, 1)),
        b(test::random_tensor({Dims(1, k, n)}, dtype, 2)),
        c(Tensor::empty(Dims(1, m, n), result)),
        card_a(to(a, cuda_device())),
        card_b(to(b, cuda_device())),
        card_c(Tensor::empty(c.sizes(), result, cuda_device())) {
    fill_(c, 1), fill_(card_c, 1);
    matmul_(c, a, b, true);
  }
  void run(bool accumulate = true) const { matmul_(card_c, card_a, card_b, accumulate); }
  double error() const {  // the largest, of the largest value
    const std::vector<double> want = c.to_vector(), got = card_c.to_vector();
    double worst = 0, largest = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::isfinite(got[i]) ? std::abs(got[i] - want[i]) : INFINITY);
      largest = std::max(largest, std::abs(want[i]));
    }
    return worst / largest;
  }
  Tensor a, b, c, card_a, card_b, card_c;
};

// Lines of the files of choices in the folder.
int64_t choices_in(const fs::path& folder) {
  int64_t lines = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("matmul-")) {
      const std::string text = read_file(entry.path());
      lines += std::count(text.begin(), text.end(), '\n');
    }
  return lines;
}

// The first product of its kind is searched for: c keeps its value while algorithms are timed.
TEST(CudaMatmul, SearchKeepsTheResultAndItsChoice) {
  const test::TempFolder folder;
  const Variable cache("TALLY_CACHE", folder.path().string()), search("TALLY_MATMUL_SEARCH", "1");
  int64_t known = 0;
  for (const auto& [dtype, result, allowed] : {std::tuple(DType::kF32, DType::kF32, 1e-5),
                                               {DType::kBF16, DType::kBF16, 1e-2},
                                               {DType::kBF16, DType::kF32, 1e-5}}) {
    const Product p(334, 520, 264, dtype, result);
    p.run();
    EXPECT_LE(p.error(), allowed) << name_of(dtype) << " into " << name_of(result);
    EXPECT_EQ(choices_in(folder.path()), ++known);
    const std::vector<double> first = p.card_c.to_vector();
    Tensor c = p.card_c;
    fill_(c, 1);
    p.run();
    EXPECT_EQ(p.card_c.to_vector(), first);
    EXPECT_EQ(choices_in(folder.path()), known);
  }
  Product(2, 3, 4, DType::kF32, DType::kF32).run();  // not worth it
  EXPECT_EQ(choices_in(folder.path()), known);
  const Variable off("TALLY_MATMUL_SEARCH", "0");
  const Product p(336, 520, 264, DType::kF32, DType::kF32);
  p.run();
  EXPECT_LE(p.error(), 1e-5);
  EXPECT_EQ(choices_in(folder.path()), known);
}

// The key and the algorithm of the one line in a folder's one file.
std::pair<std::vector<int64_t>, MatmulChoices::Algorithm> only_choice(const fs::path& file) {
  const std::string text = read_file(file);
  std::vector<int64_t> key;
  for (size_t at = 0, end = text.find(" :"); at < end;) {
    size_t used = 0;
    key.push_back(std::stoll(text.substr(at), &used));
    at += used;
  }
  const auto found = MatmulChoices(file).find(key);
  EXPECT_TRUE(found);
  return {key, found.value_or(MatmulChoices::Algorithm{})};
}

// A file that holds another product's algorithm, or none: what does not fit is not taken.
TEST(CudaMatmul, StoredChoicesAreChecked) {
  const Variable search("TALLY_MATMUL_SEARCH", "1");
  const auto searched = [](DType dtype, fs::path& name) {
    const test::TempFolder folder;
    const Variable cache("TALLY_CACHE", folder.path().string());
    Product(340, 520, 264, dtype, dtype).run();
    const fs::path file = fs::directory_iterator(folder.path())->path();
    name = file.filename();
    return only_choice(file);
  };
  fs::path name;
  auto [key, own] = searched(DType::kBF16, name);
  for (const MatmulChoices::Algorithm& bad : {searched(DType::kF32, name).second, MatmulChoices::Algorithm{}}) {
    const test::TempFolder folder;
    key[1] += 4;  // the rows of c, of a product that was not seen yet
    MatmulChoices(folder.path() / name).keep(key, bad);
    const Variable cache("TALLY_CACHE", folder.path().string());
    const Product p(key[1], 520, 264, DType::kBF16, DType::kBF16);
    p.run();
    EXPECT_LE(p.error(), 1e-2);
    EXPECT_NE(only_choice(folder.path() / name).second, bad);
  }
}

TEST(CudaMatmul, CapturedProductsAreNotTimed) {
  const test::TempFolder folder;
  const Variable cache("TALLY_CACHE", folder.path().string()), search("TALLY_MATMUL_SEARCH", "1");
  Product(328, 520, 264, DType::kBF16, DType::kF32).run();  // the library is there
  const Product p(332, 520, 264, DType::kBF16, DType::kF32);
  synchronize(cuda_device());
  const auto stream = static_cast<cudaStream_t>(detail::device_stream(0));
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  p.run();
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(choices_in(folder.path()), 1);
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(ready, stream), cudaSuccess);
  EXPECT_LE(p.error(), 1e-5);
  cudaGraphExecDestroy(ready), cudaGraphDestroy(graph);
}

// Rounding both operands to 10 bits: errors of some 1e-4, and not those of f32.
TEST(CudaMatmul, Tf32IsAnOption) {
  const Product p(512, 512, 512, DType::kF32, DType::kF32);
  p.run();
  EXPECT_LE(p.error(), 1e-5);
  set_matmul_precision(MatmulPrecision::kTf32);
  Tensor c = p.card_c;
  fill_(c, 1);
  p.run();
  set_matmul_precision(MatmulPrecision::kF32);
  EXPECT_LE(p.error(), 2e-3);
  EXPECT_GE(p.error(), 2e-5);
  fill_(c, 1);
  p.run();
  EXPECT_LE(p.error(), 1e-5);
}

}  // namespace
}  // namespace tally
