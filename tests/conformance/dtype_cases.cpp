// What dtypes keep and lose: C31, C32.
#include <gtest/gtest.h>

#include "tally/core/dtype.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/view.h"
#include "tests/conformance/cases.h"

namespace tally::conformance {
namespace {

double rounded(double x, DType dtype) { return to(Tensor::from(std::vector<double>{x}, Dims(1)), dtype).item(); }

// "0 / nonzero; 448, 57344; 65504; 2304"
void c31(const Json& expect) {
  EXPECT_EQ(expect.as_string(), "0 / nonzero; 448, 57344; 65504; 2304");
  EXPECT_EQ(rounded(1e-8, DType::kF16), 0);
  EXPECT_NE(rounded(1e-8, DType::kBF16), 0);
  EXPECT_EQ(finfo(DType::kF8E4M3).max, 448);
  EXPECT_EQ(finfo(DType::kF8E5M2).max, 57344);
  EXPECT_EQ(finfo(DType::kF16).max, 65504);
  const Tensor w = Tensor::empty(Dims(4 * 12288, 12288), DType::kF32, kMetaCpu);
  EXPECT_EQ(w.numel() * w.element_size(), int64_t{2304} << 20);
}

// A thousand times s += 0.01, one after the other.
Tensor sum_of(DType sum, DType term) {
  const Tensor x = to(Tensor::from(std::vector<float>{0.01f}, Dims(1)), term);
  Tensor s = to(Tensor::from(std::vector<float>{0}, Dims(1)), sum);
  for (int i = 0; i < 1000; ++i) s = add(s, to(x, sum));
  return s;
}

void c32(const Json& expect) {
  expect_numbers({sum_of(DType::kF32, DType::kF32).item(), sum_of(DType::kF16, DType::kF16).item(),
                  sum_of(DType::kF32, DType::kF16).item()},
                 numbers(expect), 1e-6);
}

}  // namespace

std::vector<Case> dtype_cases() { return {{"C31", c31}, {"C32", c32}}; }

}  // namespace tally::conformance
