#include "tally/nn/state.h"

#include <cmath>
#include <fstream>

#include "tally/io/safetensors.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::expect_error;
using test::TempFolder;

TEST(State, ValuesComeBackBitForBit) {
  TempFolder folder;
  Tensor a = Tensor::from(std::vector<float>{1, -0.0f, 3e-42f, 4e37f, INFINITY, 6}, Dims(2, 3));
  Tensor b = Tensor::from(std::vector<double>{0.1, 1e300}, Dims(2));
  save_tensors(folder / "m.safetensors", {{"a.weight", &a}, {"b", &b}}, {{"format", "pt"}});
  Tensor a2 = Tensor::empty(Dims(2, 3)), b2 = Tensor::empty(Dims(2), DType::kF64);
  load_tensors(folder / "m.safetensors", {{"b", &b2}, {"a.weight", &a2}});
  EXPECT_EQ(a2.to_vector(), a.to_vector());
  EXPECT_TRUE(std::signbit(a2.to_vector()[1]));
  EXPECT_EQ(b2.to_vector(), b.to_vector());
  EXPECT_EQ(*SafeTensors(folder / "m.safetensors").find_metadata("format"), "pt");
}

TEST(State, LoadConvertsBetweenFloats) {
  TempFolder folder;
  Tensor wide = Tensor::from(std::vector<double>{1, 1.00390625, -2.5}, Dims(3));
  save_tensors(folder / "m.safetensors", {{"w", &wide}});
  Tensor f32 = Tensor::empty(Dims(3)), half = Tensor::empty(Dims(3), DType::kBF16);
  load_tensors(folder / "m.safetensors", {{"w", &f32}});
  load_tensors(folder / "m.safetensors", {{"w", &half}});
  EXPECT_EQ(f32.to_vector(), wide.to_vector());
  EXPECT_EQ(half.to_vector(), (std::vector<double>{1, 1, -2.5}));  // 1 + 2^-8 ties to even
}

TEST(State, TheFirstDifferenceIsNamedAndNothingChanges) {
  TempFolder folder;
  Tensor a = Tensor::from(std::vector<float>{1, 2}, Dims(2)), b = Tensor::from(std::vector<float>{3, 4, 5}, Dims(3));
  const auto path = folder / "m.safetensors";
  save_tensors(path, {{"blocks.0.a", &a}, {"blocks.0.b", &b}});
  Tensor x = Tensor::from(std::vector<float>{7, 8}, Dims(2)), y = Tensor::from(std::vector<float>{9, 9}, Dims(2));
  expect_error(
      [&] {
        load_tensors(path, {{"blocks.0.a", &x}, {"blocks.0.b", &y}});
      },
      "m.safetensors: blocks.0.b has the shape (3,); here it has the shape (2,)");
  expect_error([&] { load_tensors(path, {{"blocks.0.a", &x}}); }, "holds blocks.0.b of shape (3,)");
  expect_error([&] { load_tensors(path, {{"blocks.0.a", &x}, {"blocks.0.c", &y}}); }, "blocks.0.c");
  EXPECT_EQ(x.to_vector(), (std::vector<double>{7, 8}));
}

TEST(State, MetaTensorsAreRefused) {
  TempFolder folder;
  Tensor t = Tensor::empty(Dims(2), DType::kF32, kMetaCpu);
  expect_error([&] { save_tensors(folder / "m.safetensors", {{"w", &t}}); }, "w is on meta");
}

TEST(State, O18TruncatedFileIsRefusedAtEveryLength) {
  TempFolder folder;
  Tensor a = Tensor::from(std::vector<float>(100, 1.5f), Dims(10, 10));
  const auto path = folder / "m.safetensors";
  save_tensors(path, {{"w", &a}});
  const std::string whole = read_file(path);
  Tensor x = Tensor::from(std::vector<float>(100, 0.0f), Dims(10, 10));
  for (size_t length = 0; length < whole.size(); ++length) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, length);
    expect_error([&] { load_tensors(path, {{"w", &x}}); }, "m.safetensors");
  }
  EXPECT_EQ(x.to_vector(), std::vector<double>(100, 0.0));
}

}  // namespace
}  // namespace tally
