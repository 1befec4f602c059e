// Tensors without ops: shapes, strides and offsets over one storage, sizes that cannot be, bytes at the block boundary,
// 16-bit rounding. Facts A004, A020, A022-A041, A049-A061, A073-A082 of the course and trap O02 (bounds of raw
// strides).
#include "tally/core/tensor.h"

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "tally/core/arena.h"
#include "tally/core/device.h"
#include "tally/core/tape.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::expect_error;

Tensor arange(const Dims& size) {
  std::vector<float> v(static_cast<size_t>(size.numel()));
  std::iota(v.begin(), v.end(), 0.0f);
  return Tensor::from(v, size);
}

TEST(Tensor, EmptyIsContiguousF32OnTheCpu) {
  const Tensor t = Tensor::empty(Dims(4, 8));
  EXPECT_EQ(t.dtype(), DType::kF32);
  EXPECT_EQ(t.element_size(), 4);
  EXPECT_EQ(t.numel(), 32);
  EXPECT_EQ(t.numel() * t.element_size(), 128);
  EXPECT_EQ(t.device(), kCpu);
  EXPECT_EQ(t.sizes(), Dims(4, 8));
  EXPECT_EQ(t.strides(), Dims(8, 1));
  EXPECT_EQ(t.storage_offset(), 0);
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_FALSE(t.requires_grad());
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, BytesOfEachDtype) {
  const std::pair<DType, int64_t> rows[] = {
      {DType::kF64, 256}, {DType::kF32, 128},   {DType::kBF16, 64},   {DType::kI64, 256},   {DType::kI32, 128},
      {DType::kU16, 64},  {DType::kU8, 32},     {DType::kF16, 64},    {DType::kI16, 64},    {DType::kI8, 32},
      {DType::kBool, 32}, {DType::kF8E4M3, 32}, {DType::kF8E5M2, 32}, {DType::kF8E8M0, 32}, {DType::kF4E2M1x2, 32}};
  static_assert(std::size(rows) == kDTypes);
  for (const auto& [dtype, bytes] : rows) {
    EXPECT_EQ(Tensor::empty(Dims(4, 8), dtype).raw().bytes(), bytes) << name_of(dtype);
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
  }
  expect_error([] { dtype_from_name("f24"); }, "unknown dtype 'f24'; use one of f64, f32, bf16");
}

TEST(Tensor, OffsetIsTheSumOfIndexTimesStride) {
  const Tensor x = arange(Dims(4, 4));
  EXPECT_EQ(x.stride(0), 4);
  EXPECT_EQ(x.stride(1), 1);
  EXPECT_EQ(x.stride(-1), 1);
  EXPECT_EQ(x.size(-2), 4);
  EXPECT_EQ(x.data<float>()[1 * x.stride(0) + 2 * x.stride(1)], 6);
  EXPECT_EQ(x.alias(Dims(), Dims(), 1 * 4 + 2).item(), 6);
  EXPECT_EQ(x.alias(Dims(), Dims(), 2 * 4 + 2).item(), 10);  // the 11th value counting from 1
  expect_error([&] { x.size(2); }, "size: Dimension out of range (expected to be in range of [-2, 1], but got 2)");
  expect_error([&] { x.stride(-3); },
               "stride: Dimension out of range (expected to be in range of [-2, 1], but got -3)");
}

TEST(Tensor, AliasSharesStorageAndIsNotRecorded) {
  const Tensor x = Tensor::from(std::vector<float>{1.f, 2, 3, 4, 5, 6}, Dims(2, 3));
  const Tensor column = x.alias(Dims(2), Dims(3), 1), turned = x.alias(Dims(3, 2), Dims(1, 3), 0);
  EXPECT_TRUE(column.shares_storage(x));
  EXPECT_EQ(column.storage_offset(), 1);
  EXPECT_EQ(column.to_vector(), (std::vector<double>{2, 5}));
  EXPECT_EQ(turned.to_vector(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_FALSE(turned.is_contiguous());
  x.data<float>()[0] = 100;
  EXPECT_EQ(turned.to_vector()[0], 100);
  turned.data<float>()[3] = -7;  // storage position 3 is x[1][0]
  EXPECT_EQ(x.to_vector()[3], -7);
  EXPECT_FALSE(x.unique_storage());
}

// O02: 16 elements seen at 8, -34, ... and at 0, 10, 20.
TEST(Tensor, AliasBoundsAreTheStorages) {
  const Tensor x = arange(Dims(16));
  expect_error([&] { x.alias(Dims(4), Dims(-42), 8); }, "reaches outside its storage");
  expect_error([&] { x.alias(Dims(3), Dims(10), 0); }, "reaches outside its storage");
  expect_error([&] { x.alias(Dims(1), Dims(1), 16); }, "reaches outside its storage");
  expect_error([&] { x.alias(Dims(1), Dims(1), -1); }, "reaches outside its storage");
  expect_error([&] { x.alias(Dims(), Dims(), 16); }, "reaches outside its storage");
  expect_error([&] { x.alias(Dims(int64_t{1} << 62, 4), Dims(int64_t{1} << 40, 1), 0); }, "reaches outside");
  expect_error([&] { x.alias(Dims(-1), Dims(1), 0); }, "negative size");
  EXPECT_EQ(x.alias(Dims(4), Dims(-5), 15).to_vector(), (std::vector<double>{15, 10, 5, 0}));
  EXPECT_EQ(x.alias(Dims(3), Dims(0), 15).to_vector(), (std::vector<double>{15, 15, 15}));
  EXPECT_EQ(x.alias(Dims(0, 99), Dims(7, 7), 400).numel(), 0);  // no element, nothing to reach
}

TEST(Tensor, SizesThatCannotBe) {
  for (Device device : {kCpu, kMetaCpu}) {
    expect_error([&] { Tensor::empty(Dims(-1), DType::kF32, device); }, "negative size in (-1,)");
    expect_error([&] { Tensor::empty(Dims(int64_t{1} << 62, int64_t{1} << 62), DType::kF32, device); },
                 "is larger than any memory");
    expect_error([&] { Tensor::empty(Dims(int64_t{1} << 61), DType::kF32, device); }, "is larger than any memory");
    expect_error([&] { Tensor::empty(Dims(0, int64_t{1} << 62, 8), DType::kF32, device); },
                 "is larger than any memory");
    EXPECT_EQ(Tensor::empty(Dims(3, 0, 2), DType::kF32, device).numel(), 0);
  }
  expect_error([] { Tensor::from(std::vector<float>{1, 2}, Dims(3)); }, "2 values do not fill a tensor of shape (3,)");
  expect_error([] { Tensor::from(std::vector<float>{}, Dims(int64_t{1} << 32, int64_t{1} << 32)); }, "larger than any");
#if !defined(__SANITIZE_ADDRESS__)
  const int64_t before = Ledger::current().live_bytes(), live = cpu_blocks().live;
  EXPECT_THROW(Tensor::empty(Dims(int64_t{1} << 47), DType::kU8), RunError);  // beyond a 47-bit address space
  EXPECT_EQ(Ledger::current().live_bytes(), before);
  EXPECT_EQ(cpu_blocks().live, live);
#endif
}

TEST(Tensor, ValuesAndItem) {
  EXPECT_EQ(Tensor::from(std::vector<int32_t>{3, -4}, Dims(2)).to_vector(), (std::vector<double>{3, -4}));
  EXPECT_EQ(Tensor::from(std::vector<double>{0.1}, Dims()).item(), 0.1);
  EXPECT_EQ(Tensor::from(std::vector<float>{0.1f}, Dims(1, 1)).item(), 0.1f);
  expect_error([] { arange(Dims(2)).item(); }, "item: a tensor of shape (2,) has 2 elements, not one");
  expect_error([] { Tensor::empty(Dims(2), DType::kF32, kMetaCpu).to_vector(); }, "a meta:cpu tensor has no values");
}

TEST(Tensor, LeavesAndDetach) {
  Tensor x = arange(Dims(2));
  x.set_requires_grad();
  EXPECT_TRUE(x.requires_grad());
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(x.detach().requires_grad());
  EXPECT_TRUE(x.detach().shares_storage(x));
  x.set_grad(arange(Dims(2)));
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 1}));
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(x.set_requires_grad(false).requires_grad());
  expect_error([] { Tensor::empty(Dims(2), DType::kI32).set_requires_grad(); }, "a i32 tensor cannot require");
}

// bf16 is the upper half of an f32, rounded to nearest even; going back is exact.
TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1e-8f).bits, 0x322C);
  EXPECT_EQ(to_float(to_bf16(1e-8f)), 1.0011717677116394e-08f);
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3F80);
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1p-8f)), 1.0f);                    // tie, down to even
  EXPECT_EQ(to_float(to_bf16(1.0f + 3 * 0x1p-8f)), 1.0f + 2 * 0x1p-7f);  // tie, up to even
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1.02p-8f)), 1.0f + 0x1p-7f);       // just above the tie
  EXPECT_EQ(to_float(bf16{0x7F7F}), 3.3895313892515355e38f);             // the largest
  EXPECT_TRUE(std::isinf(to_float(to_bf16(3.4028235e38f))));             // rounds up and over
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::nanf("1")))));
  EXPECT_TRUE(std::isnan(to_float(to_bf16(__builtin_bit_cast(float, 0x7F800001u)))));  // a NaN in the lower half only
  EXPECT_EQ(to_bf16(-0.0f).bits, 0x8000);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = to_float(bf16{static_cast<uint16_t>(bits)});
    if (std::isnan(x)) continue;
    ASSERT_EQ(to_bf16(x).bits, bits);
  }
}

TEST(Memory, TwoSquareMatricesTake8192Bytes) {
  LedgerGuard guard;
  const int64_t live = cpu_blocks().live;
  const Tensor a = Tensor::empty(Dims(32, 32)), b = Tensor::empty(Dims(32, 32));
  EXPECT_EQ(guard.ledger().live_bytes(), 8192);
  EXPECT_EQ(cpu_blocks().live - live, 8192);
}

TEST(Memory, ABillionWeightsOnMetaTakeNoMemory) {
  LedgerGuard guard;
  const int64_t live = cpu_blocks().live;
  const Tensor w = Tensor::empty(Dims(12288 * 4, 12288), DType::kF32, kMetaCpu, Category::kParameter);
  EXPECT_EQ(w.numel(), 603979776);
  EXPECT_EQ(guard.ledger().live_bytes(), int64_t{2304} << 20);
  EXPECT_EQ(guard.ledger().live()[static_cast<size_t>(Category::kParameter)], 2415919104);
  EXPECT_EQ(cpu_blocks().live, live);
  EXPECT_EQ(w.data<float>(), nullptr);
}

TEST(Memory, BlocksRoundTo256AndViewsAreFree) {
  LedgerGuard guard;
  {
    const Tensor one = Tensor::empty(Dims(1), DType::kU8), none = Tensor::empty(Dims(0, 5));
    EXPECT_EQ(guard.ledger().live_bytes(), 256);
    const Tensor more = Tensor::empty(Dims(257), DType::kU8);
    EXPECT_EQ(guard.ledger().live_bytes(), 256 + 512);
    const Tensor view = more.alias(Dims(2), Dims(1), 3), copy = more;
    EXPECT_EQ(guard.ledger().live_bytes(), 256 + 512);
  }
  EXPECT_EQ(guard.ledger().live_bytes(), 0);
  EXPECT_EQ(guard.ledger().peak_bytes(), 256 + 512);
}

TEST(Memory, CategoriesAndPeakAtTheBlockBoundary) {
  reset_block_peak();
  const BlockCounts before = cpu_blocks();
  {
    const Tensor p = Tensor::empty(Dims(1024), DType::kU8, kCpu, Category::kParameter);
    { const Tensor a = Tensor::empty(Dims(4096), DType::kU8); }
    const Tensor c = Tensor::empty(Dims(512), DType::kU8, kCpu, Category::kCache);
    EXPECT_EQ(cpu_blocks().live - before.live, 1024 + 512);
    EXPECT_EQ(cpu_blocks().live_by[static_cast<size_t>(Category::kCache)] -
                  before.live_by[static_cast<size_t>(Category::kCache)],
              512);
  }
  EXPECT_EQ(cpu_blocks().live, before.live);
  EXPECT_EQ(cpu_blocks().peak - before.live, 1024 + 4096);
  EXPECT_EQ(cpu_blocks().at_peak[static_cast<size_t>(Category::kActivation)] -
                before.live_by[static_cast<size_t>(Category::kActivation)],
            4096);
}

TEST(Memory, FreedMemoryIsUsedAgain) {
  if (!Arena::kReuses) GTEST_SKIP() << "under the address sanitizer a tensor has its own allocation";
  release_cached_blocks();
  EXPECT_EQ(cpu_blocks().cached, 0);
  { const Tensor a = Tensor::empty(Dims(70000)), b = Tensor::empty(Dims(70000)); }
  EXPECT_GE(cpu_blocks().cached, 2 * block_bytes(280000));
  const int64_t taken = cpu_blocks().system_blocks;
  for (int i = 1; i < 100; ++i) {  // larger, smaller and several tensors take the place of the two
    const Tensor t = Tensor::empty(Dims(1400 * i));
    std::vector<Tensor> parts;
    for (int j = i; j < 100; j += 10) parts.push_back(Tensor::empty(Dims(1400)));
  }
  EXPECT_EQ(cpu_blocks().system_blocks, taken);
  release_cached_blocks();
  EXPECT_EQ(cpu_blocks().cached, 0);
}

TEST(Arena, PiecesNeverOverlapAndJoinAgain) {
  if (!Arena::kReuses) GTEST_SKIP() << "under the address sanitizer a block is its own allocation";
  Arena arena;
  std::map<char*, int64_t> live;
  uint64_t random = 1;
  const auto next = [&] {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>(random >> 33);
  };
  for (int i = 0; i < 20000; ++i) {
    if (next() % 2 == 0 || live.empty()) {
      const int64_t bytes = 256 * static_cast<int64_t>(1 + next() % (i % 7 == 0 ? 40000 : 40));
      auto* p = static_cast<char*>(arena.take(bytes));
      ASSERT_NE(p, nullptr);
      const auto after = live.lower_bound(p);
      ASSERT_TRUE(after == live.end() || p + bytes <= after->first);
      ASSERT_TRUE(after == live.begin() || std::prev(after)->first + std::prev(after)->second <= p);
      p[0] = p[bytes - 1] = 1;
      live[p] = bytes;
    } else {
      auto it = live.lower_bound(live.begin()->first + next() % 100000000);
      if (it == live.end()) it = live.begin();
      arena.give(it->first, it->second);
      live.erase(it);
    }
  }
  for (const auto& [p, bytes] : live) arena.give(p, bytes);
  const int64_t growths = arena.growths(), all = arena.free_bytes();
  void* const whole = arena.take(all);  // one piece again
  EXPECT_NE(whole, nullptr);
  EXPECT_EQ(arena.growths(), growths);
  EXPECT_EQ(arena.take(int64_t{1} << 60), nullptr);
}

TEST(Memory, GuardsPoisonNewBlocksAndNoticeDamage) {
  set_memory_guards(true);
  const int64_t before = damaged_guards();
  {
    const Tensor t = Tensor::empty(Dims(64));
    for (double x : t.to_vector()) EXPECT_TRUE(std::isnan(x));
    t.data<float>()[0] = t.data<float>()[63] = 1;
  }
  EXPECT_EQ(damaged_guards(), before);
  for (int at : {-1, 64}) {
    const Tensor t = Tensor::empty(Dims(64));
    volatile float* p = t.data<float>();
    p[at] = 0;
  }
  EXPECT_EQ(damaged_guards(), before + 2);
  set_memory_guards(false);
}

TEST(Pinned, BytesForCopiesMoveAndAreCopied) {
  PinnedBytes a(1000, kCpu);
  auto* const bytes = static_cast<unsigned char*>(a.data());
  for (int i = 0; i < 1000; ++i) bytes[i] = static_cast<unsigned char>(i);
  std::vector<unsigned char> there(1000);
  copy_bytes_async(there.data(), kCpu, a.data(), kCpu, 1000);
  synchronize(kCpu);
  EXPECT_EQ(std::memcmp(there.data(), bytes, 1000), 0);
  PinnedBytes b(std::move(a));
  EXPECT_EQ(b.data(), bytes);
  EXPECT_EQ(b.bytes(), 1000);
  PinnedBytes none;
  EXPECT_EQ(none.data(), nullptr);
  none = std::move(b);
  EXPECT_EQ(none.data(), bytes);
  EXPECT_EQ(PinnedBytes(0, kCpu).data(), nullptr);
  if (!built_with_cuda()) {
    test::expect_error([] { PinnedBytes(8, Device{DeviceKind::kCuda}); }, "this build has no CUDA");
  }
}

TEST(Pinned, TensorIsCountedAsOthers) {
  const int64_t before = memory_allocated(kCpu);
  {
    const LedgerGuard guard;
    const Tensor x = Tensor::empty_pinned(Dims(32, 32), DType::kF32, Category::kData);
    const Tensor y = Tensor::empty(Dims(32, 32));
    EXPECT_EQ(memory_allocated(kCpu) - before, 8192);
    EXPECT_EQ(guard.ledger().live_bytes(), 8192);
    EXPECT_EQ(guard.ledger().live()[static_cast<size_t>(Category::kData)], 4096);
    EXPECT_EQ(x.is_pinned(), cuda_device_count() > 0);
    EXPECT_FALSE(y.is_pinned());
  }
  EXPECT_EQ(memory_allocated(kCpu), before);
}

TEST(Memory, WhatIsTooLargeIsOneTypedError) {
  const int64_t live = memory_allocated(kCpu);
  try {
    take_block(kCpu, int64_t{1} << 60, Category::kActivation);
    FAIL() << "there was a block of 2^60 bytes";
  } catch (const OutOfMemory& e) {
    EXPECT_EQ(e.device, kCpu);
    EXPECT_EQ(e.live, live);
    EXPECT_NE(std::string(e.what()).find("the system has no 1152921504606846976 bytes"), std::string::npos) << e.what();
  }
  EXPECT_EQ(memory_allocated(kCpu), live);
}

}  // namespace
}  // namespace tally
