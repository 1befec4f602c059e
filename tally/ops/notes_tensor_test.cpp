// The course notes' numbered facts about tensors, memory, storage, views and randomness: one test a line. Lines that
// slip are tested at the right value. Cards: tests/cuda/notes_test.cpp; data: tally/data/notes_data_test.cpp.
#include <cmath>
#include <numeric>

#include "tally/base/rng.h"
#include "tally/core/device.h"
#include "tally/core/print.h"
#include "tally/ops/allclose.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/embedding.h"
#include "tally/ops/matmul.h"
#include "tally/ops/op_test.h"
#include "tally/ops/random.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::expect_error;
using V = std::vector<double>;

Tensor one_to_six() { return tensor({{1., 2, 3}, {4, 5, 6}}); }
Tensor four_by_four() { return view(arange(16, {.dtype = DType::kF32}), {4, 4}); }

// ---- tensor basics

TEST(Notes, A001_OneFloatLiteralMakesAllFloat) {
  const Tensor x = tensor({{1., 2, 3}, {4, 5, 6}});
  EXPECT_EQ(x.sizes(), Dims(2, 3));
  EXPECT_EQ(x.dtype(), DType::kF32);
  EXPECT_EQ(x.numel(), 6);
  EXPECT_EQ(tensor({{1, 2, 3}, {4, 5, 6}}).dtype(), DType::kI64);
}

TEST(Notes, A002_ZerosAndOnes) {
  EXPECT_EQ(zeros({4, 8}).sizes(), Dims(4, 8));
  EXPECT_EQ(zeros({4, 8}).to_vector(), V(32, 0));
  EXPECT_EQ(ones({4, 8}).to_vector(), V(32, 1));
  EXPECT_EQ(sum(ones({4, 8})).item(), 32);
}

TEST(Notes, A003_RandnIsStandardNormal) {
  Generator g(0);
  EXPECT_EQ(randn({4, 8}, {}, g).sizes(), Dims(4, 8));
  const Tensor x = randn({1000, 1000}, {}, g);
  EXPECT_NEAR(mean(x).item(), 0, 0.004);
  EXPECT_NEAR(mean(square(x)).item(), 1, 0.006);
}

TEST(Notes, A004_EmptyAllocatesAndDoesNotInitialise) {
  LedgerGuard guard;
  const Tensor x = empty({4, 8});
  EXPECT_EQ(x.sizes(), Dims(4, 8));
  EXPECT_EQ(x.dtype(), DType::kF32);
  EXPECT_EQ(guard.ledger().live_bytes(), 256);
  EXPECT_EQ(guard.ledger().launches(), 0);
}

TEST(Notes, A005_TruncatedNormalInPlace) {
  const Tensor x = empty({1000, 1000});
  const void* const before = x.data_ptr();
  Generator g(1);
  trunc_normal_(x, 0, 1, -2, 2, g);
  EXPECT_EQ(x.data_ptr(), before);
  double sum = 0, squares = 0;
  for (const double v : x.to_vector()) {
    ASSERT_TRUE(v >= -2 && v <= 2);
    sum += v, squares += v * v;
  }
  const double variance = squares / 1e6 - sum * sum / 1e12;
  EXPECT_NEAR(variance, 0.7737, 0.003);
  EXPECT_NEAR(std::sqrt(variance), 0.8796, 0.002);
}

TEST(Notes, A006_MassOutsideTwoAndThreeSigma) {
  Generator g(2);
  double two = 0, three = 0;
  for (const double v : randn({1000, 1000}, {}, g).to_vector()) two += std::abs(v) > 2, three += std::abs(v) > 3;
  EXPECT_NEAR(two / 1e6, 0.0455, 0.001);
  EXPECT_NEAR(three / 1e6, 0.0027, 0.00025);
}

TEST(Notes, A007_ArangeOfFloats) {
  const Tensor x = arange(16, {.dtype = DType::kF32});
  V want(16);
  std::iota(want.begin(), want.end(), 0.0);
  EXPECT_EQ(x.to_vector(), want);
  EXPECT_EQ(sum(square(x)).item(), 1240);
}

TEST(Notes, A008_EqualComparesAfterPromotion) {
  EXPECT_TRUE(equal(view(one_to_six(), {3, 2}), tensor({{1, 2}, {3, 4}, {5, 6}})));
  EXPECT_FALSE(equal(view(one_to_six(), {3, 2}), tensor({{1, 2}, {3, 4}, {5, 7}})));
}

TEST(Notes, A009_SizesCompareElementByElement) {
  const Tensor x = zeros({2, 3});
  EXPECT_TRUE(x.sizes() == Dims(2, 3));
  EXPECT_FALSE(x.sizes() == Dims(3, 2));
  EXPECT_FALSE(x.sizes() == Dims(2, 3, 1));
  EXPECT_EQ(x.size(0), 2);
}

TEST(Notes, A010_TruthOfOneElement) {
  EXPECT_TRUE(bool(tensor({true})));
  EXPECT_FALSE(bool(tensor({false})));
  EXPECT_TRUE(bool(tensor({{-0.5}})));
  expect_error([] { static_cast<void>(bool(tensor({true, true}))); }, "ambiguous");
  expect_error([] { static_cast<void>(bool(zeros({0}))); }, "a tensor of no values is ambiguous");
}

TEST(Notes, A011_ReshapeInfersASize) {
  const Tensor x = randn({4, 4});
  EXPECT_EQ(x.numel(), 16);
  EXPECT_EQ(reshape(x, {2, -1}).sizes(), Dims(2, 8));
}

TEST(Notes, A012_BroadcastingAlignsFromTheRight) {
  EXPECT_EQ(add(zeros({5, 1, 4}), zeros({3, 1})).sizes(), Dims(5, 3, 4));
  EXPECT_EQ(add(zeros({2, 3}), zeros({3})).sizes(), Dims(2, 3));
  expect_error([] { add(zeros({2, 3}), zeros({2})); }, "do not broadcast");
}

TEST(Notes, A013_SecondOperandIsAddedToEachItem) {
  const Tensor x = randn({2, 3, 4}), y = randn({3, 4}), z = add(x, y);
  EXPECT_EQ(z.sizes(), Dims(2, 3, 4));
  for (int b = 0; b < 2; ++b) EXPECT_TRUE(equal(select(z, 0, b), add(select(x, 0, b), y)));
}

TEST(Notes, A015_ShapesFromIdsToLogits) {
  const int64_t b = 2, t = 5, d = 12, h = 3, vocab = 7;
  const Tensor ids = randint(vocab, {b, t}, {.dtype = DType::kI32}), table = randn({vocab, d});
  const Tensor x = embedding(ids, table);
  EXPECT_EQ(x.sizes(), Dims(b, t, d));
  const Tensor heads = transpose(view(x, {b, t, h, d / h}), 1, 2);
  EXPECT_EQ(heads.sizes(), Dims(b, h, t, d / h));
  EXPECT_EQ(matmul(heads, mT(heads)).sizes(), Dims(b, h, t, t));
  EXPECT_EQ(linear(x, table).sizes(), Dims(b, t, vocab));
}

TEST(Notes, A016_HeadsTimesHeadWidthIsTheModelWidth) {
  for (const auto& [d, h, width] : {std::tuple(768, 12, 64), {12288, 96, 128}})
    EXPECT_EQ(unflatten(zeros({1, 2, d}, {.device = kMetaCpu}), -1, {h, -1}).sizes(), Dims(1, 2, h, width));
}

TEST(Notes, A017_SplittingHeadsIsViewThenTranspose) {
  const Tensor x = view(arange(24), {1, 3, 8});  // (B, T, D)
  const Tensor heads = transpose(view(x, {1, 3, 2, 4}), 1, 2), mixed = view(x, {1, 2, 3, 4});
  EXPECT_EQ(heads.sizes(), mixed.sizes());
  EXPECT_EQ(select(select(heads, 1, 0), 1, 1).to_vector(), (V{8, 9, 10, 11}));  // head 0 of position 1
  EXPECT_EQ(select(select(mixed, 1, 0), 1, 1).to_vector(), (V{4, 5, 6, 7}));    // head 1 of position 0
}

TEST(Notes, A018_TransposeSwapsTwoAxesOnly) {
  const Tensor x = zeros({2, 3, 4, 5}), y = transpose(x, 1, 3);
  EXPECT_EQ(y.sizes(), Dims(2, 5, 4, 3));
  EXPECT_EQ(y.strides(), Dims(60, 1, 5, 20));
}

TEST(Notes, A019_LogitsAreUnnormalisedLogProbabilities) {
  const Tensor logits = tensor({1.0, 2.0, -3.0}), difference = sub(log(softmax(logits, 0)), logits);
  for (const double v : difference.to_vector()) EXPECT_NEAR(v, difference.to_vector()[0], 1e-6);
  EXPECT_NEAR(sum(softmax(logits, 0)).item(), 1, 1e-6);
}

// ---- memory

TEST(Notes, A058_TwoMatricesRaiseMemoryAllocated) {
  const Device device = test::test_device();
  const int64_t before = memory_allocated(device);
  const Tensor a = zeros({32, 32}, {.device = device}), b = zeros({32, 32}, {.device = device});
  EXPECT_EQ(memory_allocated(device) - before, 8192);
}

TEST(Notes, A059_AMatrixIsAMultipleOfTheRounding) {
  const Tensor a = zeros({32, 32});
  EXPECT_EQ(a.nbytes(), 4096);
  EXPECT_EQ(a.nbytes() % 512, 0);
  EXPECT_EQ(block_bytes(a.nbytes()), 4096);
}

TEST(Notes, A060_ViewsAllocateNothing) {
  const Tensor x = zeros({64, 32}, {.device = test::test_device()});
  const int64_t before = memory_allocated(x.device());
  const Tensor y = transpose(x, 0, 1), z = view(x, {32, 64}), s = slice(x, 0, 1, 9);
  EXPECT_EQ(memory_allocated(x.device()), before);
  const Tensor copy = contiguous(y);
  EXPECT_EQ(memory_allocated(x.device()) - before, copy.numel() * copy.element_size());
}

TEST(Notes, A061_WhatATrainingRunStores) {
  for (const auto& [category, name] : {std::pair(Category::kParameter, "parameter"),
                                       {Category::kGradient, "gradient"},
                                       {Category::kOptimizer, "optimizer"},
                                       {Category::kActivation, "activation"},
                                       {Category::kData, "data"}}) {
    LedgerGuard guard;
    const Tensor x = empty({64}, {.category = category});
    EXPECT_EQ(guard.ledger().live()[static_cast<size_t>(category)], 256);
    EXPECT_STREQ(name_of(category), name);
  }
}

// ---- device (the rest needs a card)

TEST(Notes, A062_OnTheCpuUnlessToldOtherwise) {
  EXPECT_EQ(zeros({32, 32}).device(), kCpu);
  EXPECT_EQ(zeros({32, 32}).device(), device_from_name("cpu"));
}

TEST(Notes, A063_NamesOfDevices) {
  EXPECT_EQ(device_from_name("cuda:0"), cuda_device(0));
  EXPECT_EQ(device_from_name("cuda"), cuda_device(0));
  EXPECT_NE(device_from_name("cuda:1"), cuda_device(0));
  EXPECT_EQ(to(zeros({2}), device_from_name("meta:cuda")).device(), kMetaCuda);
}

TEST(Notes, A066_FunctionsThatDescribeDevices) {
  EXPECT_EQ(is_available(), device_count() > 0);
  if (is_available()) {
    EXPECT_FALSE(get_device_properties(0).name.empty());
  } else {
    EXPECT_THROW(get_device_properties(0), Error);
    EXPECT_THROW(zeros({2}, {.device = cuda_device()}), Error);
  }
  EXPECT_GE(memory_allocated(kCpu), 0);
}

TEST(Notes, A070_PinnedMemoryKeepsValues) {
  const Tensor x = randn({8, 8});
  EXPECT_FALSE(x.is_pinned());
  const Tensor pinned = pin_memory(x);
  EXPECT_EQ(pinned.is_pinned(), is_available());
  const Tensor y = to(pinned, test::test_device(), true);
  synchronize(test::test_device());
  EXPECT_EQ(y.to_vector(), x.to_vector());
}

// ---- storage, strides, views

TEST(Notes, A073_StridesOfARowMajorMatrix) {
  const Tensor x = four_by_four();
  EXPECT_EQ(x.stride(0), 4);
  EXPECT_EQ(x.stride(1), 1);
}

TEST(Notes, A074_IndexOfAnElement) {
  const Tensor x = four_by_four();
  EXPECT_EQ(1 * x.stride(0) + 2 * x.stride(1), 6);
  EXPECT_EQ(x.data<float>()[6], 6);
  EXPECT_EQ(select(select(x, 0, 1), 0, 2).item(), 6);
}

TEST(Notes, A075_ValueTenAtTwoTwo) { EXPECT_EQ(select(select(four_by_four(), 0, 2), 0, 2).storage_offset(), 10); }

TEST(Notes, A076_ZeroBasedOffsetOfValueTen) {
  const Tensor x = four_by_four();
  EXPECT_EQ(x.data<float>()[10], 10);
  EXPECT_EQ(x.data<float>()[11], 11);  // what the notes' formula would reach
}

TEST(Notes, A077_RowTimesStrideZeroPlusColumnTimesStrideOne) {
  const Tensor x = four_by_four();
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) EXPECT_EQ(x.data<float>()[i * x.stride(0) + j * x.stride(1)], 4 * i + j);
}

TEST(Notes, A078_SeveralTensorsShareOneStorage) {
  const Tensor x = four_by_four(), y = select(x, 0, 2), z = t(x);
  EXPECT_TRUE(same_storage(x, y) && same_storage(y, z));
  EXPECT_FALSE(same_storage(x, four_by_four()));
  EXPECT_EQ(y.storage_offset(), 8);
  EXPECT_EQ(static_cast<float*>(y.data_ptr()) - static_cast<float*>(x.data_ptr()), 8);
}

TEST(Notes, A079_OffsetIsTheSumOfIndexTimesStride) {
  const Tensor x = slice(permute(view(arange(120), {2, 3, 4, 5}), {3, 1, 0, 2}), 0, 1, 5, 2);
  EXPECT_EQ(x.strides().rank, x.dim());
  const std::vector<int64_t> v = x.to_vector<int64_t>();
  size_t k = 0;
  for (int64_t a = 0; a < x.size(0); ++a)
    for (int64_t b = 0; b < x.size(1); ++b)
      for (int64_t c = 0; c < x.size(2); ++c)
        for (int64_t d = 0; d < x.size(3); ++d)
          EXPECT_EQ(v[k++], x.storage_offset() + a * x.stride(0) + b * x.stride(1) + c * x.stride(2) + d * x.stride(3));
}

TEST(Notes, A080_SameStorageOfAnotherOffset) {
  const Tensor x = one_to_six();
  EXPECT_TRUE(same_storage(x, slice(x, 0, 1)));
  EXPECT_NE(x.data_ptr(), slice(x, 0, 1).data_ptr());
  EXPECT_FALSE(same_storage(x, one_to_six()));
}

TEST(Notes, A081_ARowIsAView) {
  const Tensor x = one_to_six(), y = select(x, 0, 0);
  EXPECT_TRUE(equal(y, tensor({1, 2, 3})) && same_storage(x, y));
  EXPECT_EQ(y.strides(), Dims(1));
  EXPECT_EQ(y.storage_offset(), 0);
}

TEST(Notes, A082_AColumnIsAView) {
  const Tensor x = one_to_six(), y = select(x, 1, 1);
  EXPECT_TRUE(equal(y, tensor({2, 5})) && same_storage(x, y));
  EXPECT_EQ(y.sizes(), Dims(2));
  EXPECT_EQ(y.strides(), Dims(3));
  EXPECT_EQ(y.storage_offset(), 1);
}

TEST(Notes, A083_View) {
  const Tensor x = one_to_six(), y = view(x, {3, 2});
  EXPECT_TRUE(equal(y, tensor({{1, 2}, {3, 4}, {5, 6}})) && same_storage(x, y));
  EXPECT_EQ(y.strides(), Dims(2, 1));
}

TEST(Notes, A084_Transpose) {
  const Tensor x = one_to_six(), y = transpose(x, 1, 0);
  EXPECT_TRUE(equal(y, tensor({{1, 4}, {2, 5}, {3, 6}})) && same_storage(x, y));
  EXPECT_EQ(y.sizes(), Dims(3, 2));
  EXPECT_EQ(y.strides(), Dims(1, 3));
}

TEST(Notes, A085_TransposedStridesAreSwapped) {
  EXPECT_EQ(one_to_six().strides(), Dims(3, 1));
  EXPECT_EQ(transpose(one_to_six(), 1, 0).strides(), Dims(1, 3));
}

TEST(Notes, A086_AWriteIsSeenThroughTheTranspose) {
  const Tensor x = one_to_six(), y = transpose(x, 1, 0);
  select(select(x, 0, 0), 0, 0).data<float>()[0] = 100;
  EXPECT_EQ(select(select(y, 0, 0), 0, 0).item(), 100);
}

TEST(Notes, A087_WritesAreSeenBothWays) {
  const Tensor x = one_to_six(), y = transpose(x, 1, 0), z = view(x, {6});
  Tensor last = select(select(y, 0, 2), 0, 1);  // x[1][2]
  fill_(last, -1);
  EXPECT_EQ(x.to_vector(), (V{1, 2, 3, 4, 5, -1}));
  Tensor middle = slice(z, 0, 2, 4);
  fill_(middle, 0);
  EXPECT_EQ(y.to_vector(), (V{1, 0, 2, 5, 0, -1}));
}

TEST(Notes, A088_TransposedIsNotContiguous) {
  EXPECT_TRUE(one_to_six().is_contiguous());
  EXPECT_FALSE(transpose(one_to_six(), 1, 0).is_contiguous());
}

TEST(Notes, A089_ARefusedView) {
  const Tensor y = transpose(one_to_six(), 1, 0);
  try {
    view(y, {2, 3});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::kRuntime);
    EXPECT_STREQ(e.what(),
                 "view size is not compatible with input tensor's size and stride: (3, 2) with strides (1, 3) as (2, "
                 "3); use reshape");
  }
}

TEST(Notes, A090_ContiguousThenView) {
  const Tensor x = one_to_six(), y = view(contiguous(transpose(x, 1, 0)), {2, 3});
  EXPECT_TRUE(equal(y, tensor({{1, 4, 2}, {5, 3, 6}})));
  EXPECT_FALSE(same_storage(x, y));
}

TEST(Notes, A091_ContiguousCopiesOnlyWhenItMust) {
  const Tensor x = one_to_six();
  EXPECT_TRUE(same_storage(contiguous(x), x));
  EXPECT_FALSE(same_storage(contiguous(t(x)), x));
}

TEST(Notes, A092_ReshapeNeverRefusesALayout) {
  const Tensor x = one_to_six();
  EXPECT_TRUE(same_storage(reshape(x, {3, 2}), x));
  EXPECT_FALSE(same_storage(reshape(t(x), {2, 3}), x));
  EXPECT_EQ(reshape(t(expand(select(x, 0, 0), {4, 3})), {2, 6}).sizes(), Dims(2, 6));
}

TEST(Notes, A093_ReshapeOfATranspose) {
  const Tensor x = one_to_six(), y = reshape(transpose(x, 1, 0), {2, 3});
  EXPECT_TRUE(equal(y, tensor({{1, 4, 2}, {5, 3, 6}})));
  EXPECT_FALSE(same_storage(x, y));
}

TEST(Notes, A094_ContiguousAndReshapeOfContiguousShare) {
  const Tensor x = one_to_six();
  const int64_t before = memory_allocated(kCpu);
  EXPECT_TRUE(same_storage(reshape(x, {3, 2}), x) && same_storage(contiguous(x), x));
  EXPECT_EQ(memory_allocated(kCpu), before);
}

TEST(Notes, A095_WalkOfATranspose) {
  const Tensor x = reshape(arange(6), {2, 3});  // values are places in storage
  EXPECT_EQ(x.to_vector(), (V{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(t(x).to_vector(), (V{0, 3, 1, 4, 2, 5}));
}

TEST(Notes, A096_ViewNeedsCompatibleStridesOnly) {
  const Tensor y = transpose(one_to_six(), 1, 0);
  EXPECT_FALSE(y.is_contiguous());
  EXPECT_EQ(view(y, {3, 2}).sizes(), Dims(3, 2));
  EXPECT_TRUE(same_storage(view(y, {3, 1, 2}), y));
  expect_error([&] { view(y, {2, 3}); }, "view size is not compatible");
}

TEST(Notes, A097_ReshapeMayCopy) {
  const Tensor y = transpose(zeros({16, 8}), 0, 1);
  const int64_t before = memory_allocated(kCpu);
  const Tensor z = reshape(y, {128});
  EXPECT_EQ(memory_allocated(kCpu) - before, 512);
}

TEST(Notes, A098_ViewsAreFreeCopiesAreNot) {
  const Tensor x = zeros({16, 8});
  LedgerGuard guard;
  const Tensor y = transpose(view(x, {8, 16}), 0, 1);
  EXPECT_EQ(guard.ledger().launches(), 0);
  contiguous(y);
  EXPECT_EQ(guard.ledger().cost().bytes_read, 512);
  EXPECT_EQ(guard.ledger().cost().bytes_written, 512);
}

TEST(Notes, A099_SplittingAnAxisIsAView) {
  const Tensor x = randn({2, 3, 8}), y = unflatten(x, 2, {2, 4});
  EXPECT_EQ(y.sizes(), Dims(2, 3, 2, 4));
  EXPECT_TRUE(same_storage(x, y));
}

// ---- randomness

TEST(Notes, A192_SeedOfTheProcessGenerator) {
  EXPECT_EQ(&manual_seed(0), &default_generator());
  EXPECT_EQ(default_generator().initial_seed(), 0u);
}

TEST(Notes, A193_TheSameSeedGivesTheSameDraws) {
  manual_seed(0);
  const Tensor a = randn({10}), b = rand({10});
  Generator other(0);
  rand({100}, {}, other);  // another generator does not move it
  manual_seed(0);
  EXPECT_TRUE(equal(randn({10}), a));
  rand({100}, {}, other);
  EXPECT_TRUE(equal(rand({10}), b));
  manual_seed(1);
  EXPECT_FALSE(equal(randn({10}), a));
}

TEST(Notes, A194_ASeedForEachSource) {
  Generator init(1), dropout(2), order(3);
  const Tensor w = randn({8}, {}, init), mask = bernoulli(full({64}, 0.5), dropout), p = randperm(9, {}, order);
  for (int i = 0; i < 5; ++i) rand({3}, {}, dropout), randperm(4, {}, order);
  EXPECT_TRUE(equal(randn({8}, {}, init.manual_seed(1)), w));  // replayed alone
  EXPECT_TRUE(equal(bernoulli(full({64}, 0.5), dropout.manual_seed(2)), mask));
  EXPECT_TRUE(equal(randperm(9, {}, order.manual_seed(3)), p));
}

// Our own generator's: they follow from Philox's known answers (base/rng_test.cpp) and never change.
TEST(Notes, A195_FixedValuesOfSeedZero) {
  manual_seed(0);
  const V uniform = to(rand({4}, {.device = test::test_device()}), kCpu).to_vector();
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(uniform[i], uniform_from_u32(random_u32(0, static_cast<uint64_t>(RandomStream::kDraws), i)));
  const auto floats = [](const Tensor& x) { return x.to_vector<float>(); };
  EXPECT_EQ(floats(tensor(uniform, {4})), (std::vector<float>{0.866024971f, 0.513348699f, 0.700686872f, 0.242615521f}));
  EXPECT_EQ(floats(randn({4}, {.device = test::test_device()})),
            (std::vector<float>{1.35830784f, -0.080606021f, 0.24955596f, -0.502978504f}));
  EXPECT_EQ(randint(100, {6}, {.device = test::test_device()}).to_vector(), (V{10, 66, 21, 27, 12, 22}));
  EXPECT_EQ(randperm(10, {.device = test::test_device()}).to_vector(), (V{5, 6, 3, 2, 1, 0, 4, 8, 9, 7}));
}

}  // namespace
}  // namespace tally
