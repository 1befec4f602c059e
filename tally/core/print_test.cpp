// Tensors as text: expected strings are PyTorch 2.15's str() of the same tensors.
#include "tally/core/print.h"

#include <cmath>
#include <numeric>
#include <sstream>

#include "tally/core/number.h"
#include "tests/support/support.h"

namespace tally {
namespace {

Tensor values(const std::vector<double>& v, const Dims& size, DType dtype = DType::kF32) {
  Tensor x = Tensor::empty(size, dtype);
  for (size_t i = 0; i < v.size(); ++i) write_number(x.data_ptr(), dtype, static_cast<int64_t>(i), v[i]);
  return x;
}
Tensor counting(const Dims& size, DType dtype, double divisor = 1) {
  std::vector<double> v(static_cast<size_t>(size.numel()));
  std::iota(v.begin(), v.end(), 0.0);
  for (double& x : v) x /= divisor;
  return values(v, size, dtype);
}

TEST(Print, SmallTensors) {
  EXPECT_EQ(str(values({1, 2, 3, 4, 5, 6}, Dims(2, 3))), "tensor([[1., 2., 3.],\n        [4., 5., 6.]])");
  EXPECT_EQ(str(values({1.5, -2, 3, 4, 5, 6}, Dims(2, 3))),
            "tensor([[ 1.5000, -2.0000,  3.0000],\n        [ 4.0000,  5.0000,  6.0000]])");
  EXPECT_EQ(str(values({3.25}, Dims())), "tensor(3.2500)");
  EXPECT_EQ(str(values({7}, Dims(), DType::kI64)), "tensor(7)");
  EXPECT_EQ(str(values({1, 0}, Dims(2), DType::kBool)), "tensor([ True, False])");
  EXPECT_EQ(str(values({-1, 200}, Dims(2), DType::kI16)), "tensor([ -1, 200], dtype=i16)");
  EXPECT_EQ(str(counting(Dims(2, 3, 2), DType::kF32)),
            "tensor([[[ 0.,  1.],\n         [ 2.,  3.],\n         [ 4.,  5.]],\n\n"
            "        [[ 6.,  7.],\n         [ 8.,  9.],\n         [10., 11.]]])");
  Tensor big = Tensor::empty(Dims(1), DType::kI64);
  *big.data<int64_t>() = 9007199254740993;
  EXPECT_EQ(str(big), "tensor([9007199254740993])");
  std::ostringstream out;
  out << values({1}, Dims(1));
  EXPECT_EQ(out.str(), "tensor([1.])");
}

TEST(Print, FormatOfFloats) {
  EXPECT_EQ(str(values({1e-5, 1}, Dims(2))), "tensor([1.0000e-05, 1.0000e+00])");
  EXPECT_EQ(str(values({1e9, 1}, Dims(2))), "tensor([1.0000e+09, 1.0000e+00])");
  EXPECT_EQ(str(values({NAN, 1, INFINITY}, Dims(3))), "tensor([nan, 1., inf])");
  EXPECT_EQ(str(values({NAN, 1.5, -INFINITY}, Dims(3))), "tensor([   nan, 1.5000,   -inf])");
  EXPECT_EQ(str(values({-NAN, 1}, Dims(2))), "tensor([nan, 1.])");  // a NaN has no sign
  EXPECT_EQ(str(values({0.1, 100.25}, Dims(1, 1, 2), DType::kF64)), "tensor([[[1.0000e-01, 1.0025e+02]]], dtype=f64)");
  EXPECT_EQ(str(values({0, -0.0}, Dims(2))), "tensor([0., -0.])");
}

TEST(Print, NamesOfAnotherLanguage) {
  PrintOptions o;
  o.dtype_name = [](DType t) { return t == DType::kBF16 ? std::string("tally.bfloat16") : "another"; };
  o.device_name = [](const Device&) { return std::string("meta"); };
  EXPECT_EQ(str(values({1}, Dims(1), DType::kBF16), o), "tensor([1.], dtype=tally.bfloat16)");
  EXPECT_EQ(str(Tensor::empty(Dims(2), DType::kBF16, kMetaCpu), o),
            "tensor(..., device='meta', size=(2,), dtype=tally.bfloat16)");
}

TEST(Print, LinesAndEmptyTensors) {
  EXPECT_EQ(str(counting(Dims(30), DType::kI64)),
            "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
            "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])");
  EXPECT_EQ(str(counting(Dims(11), DType::kF32, 7)),
            "tensor([0.0000, 0.1429, 0.2857, 0.4286, 0.5714, 0.7143, 0.8571, 1.0000, 1.1429,\n"
            "        1.2857, 1.4286])");
  EXPECT_EQ(str(Tensor::empty(Dims(0))), "tensor([])");
  EXPECT_EQ(str(Tensor::empty(Dims(0, 3), DType::kF64)), "tensor([], size=(0, 3), dtype=f64)");
  EXPECT_EQ(str(Tensor::empty(Dims(0), DType::kI64)), "tensor([], dtype=i64)");
  EXPECT_EQ(str(Tensor()), "tensor(undefined)");
}

TEST(Print, SummaryOfMoreThanAThousand) {
  EXPECT_EQ(str(counting(Dims(1001), DType::kI64)), "tensor([   0,    1,    2,  ...,  998,  999, 1000])");
  const Tensor rows = counting(Dims(7, 2000), DType::kF32);
  EXPECT_EQ(str(rows.alias(Dims(7, 1000), Dims(2000, 2), 0)),
            "tensor([[0.0000e+00, 2.0000e+00, 4.0000e+00,  ..., 1.9940e+03, 1.9960e+03,\n         1.9980e+03],\n"
            "        [2.0000e+03, 2.0020e+03, 2.0040e+03,  ..., 3.9940e+03, 3.9960e+03,\n         3.9980e+03],\n"
            "        [4.0000e+03, 4.0020e+03, 4.0040e+03,  ..., 5.9940e+03, 5.9960e+03,\n         5.9980e+03],\n"
            "        ...,\n"
            "        [8.0000e+03, 8.0020e+03, 8.0040e+03,  ..., 9.9940e+03, 9.9960e+03,\n         9.9980e+03],\n"
            "        [1.0000e+04, 1.0002e+04, 1.0004e+04,  ..., 1.1994e+04, 1.1996e+04,\n         1.1998e+04],\n"
            "        [1.2000e+04, 1.2002e+04, 1.2004e+04,  ..., 1.3994e+04, 1.3996e+04,\n         1.3998e+04]])");
  // Axes of at most six are whole.
  const std::string cube = str(values(std::vector<double>(1260, 1), Dims(3, 7, 60), DType::kI32));
  const std::string row = "[1, 1, 1,  ..., 1, 1, 1]", comma = ",\n         ";
  const std::string page =
      "[" + row + comma + row + comma + row + comma + "..." + comma + row + comma + row + comma + row + "]";
  EXPECT_EQ(cube, "tensor([" + page + ",\n\n        " + page + ",\n\n        " + page + "], dtype=i32)");
}

TEST(Print, DtypeDeviceAndGradient) {
  Tensor x = values({0, 0, 0, 0}, Dims(2, 2));
  x.set_requires_grad();
  EXPECT_EQ(str(x), "tensor([[0., 0.],\n        [0., 0.]], requires_grad=True)");
  EXPECT_EQ(str(Tensor::empty(Dims(2, 3), DType::kF32, kMetaCpu)), "tensor(..., device='meta:cpu', size=(2, 3))");
  EXPECT_EQ(str(Tensor::empty(Dims(2), DType::kI64, kMetaCuda)),
            "tensor(..., device='meta:cuda', size=(2,), dtype=i64)");
  PrintOptions narrow;
  narrow.linewidth = 20;
  EXPECT_EQ(str(values({1, 2, 3, 4}, Dims(4), DType::kF16), narrow),
            "tensor([1., 2., 3.,\n        4.],\n       dtype=f16)");
}

}  // namespace
}  // namespace tally
