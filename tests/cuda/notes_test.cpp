// The course notes' numbered facts about devices that need a card.
#include "tally/core/device.h"
#include "tally/core/dlpack.h"
#include "tally/core/print.h"
#include "tally/ops/allclose.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"
#include "tally/ops/random.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally {
namespace {

TEST(NotesCuda, A063_ToACard) {
  const Tensor x = zeros({32, 32}), y = to(x, device_from_name("cuda:0"));
  EXPECT_EQ(y.device(), cuda_device(0));
  EXPECT_EQ(y.device(), device_from_name("cuda:0"));
}

TEST(NotesCuda, A064_TheSourceStaysWhereItIs) {
  const Tensor x = zeros({2}), y = to(x, cuda_device());
  EXPECT_EQ(str(x), "tensor([0., 0.])");
  EXPECT_EQ(str(y), "tensor([0., 0.], device='cuda:0')");
  EXPECT_EQ(x.device(), kCpu);
}

TEST(NotesCuda, A065_MadeOnTheCard) {
  const int64_t host = memory_allocated(kCpu);
  reset_block_peak(kCpu);
  const Tensor x = zeros({32, 32}, {.device = cuda_device()});
  EXPECT_EQ(x.device(), cuda_device());
  EXPECT_EQ(memory_allocated(kCpu), host);
  EXPECT_EQ(blocks_of(kCpu).peak, host);
}

TEST(NotesCuda, A066_PropertiesOfACard) {
  EXPECT_TRUE(is_available());
  EXPECT_GE(device_count(), 1);
  EXPECT_FALSE(get_device_properties(0).name.empty());
  EXPECT_GE(memory_allocated(cuda_device()), 0);
}

TEST(NotesCuda, A067_ItIsTheResultThatIsOnTheCard) {
  const Tensor x = zeros({2}), y = to(x, cuda_device());
  EXPECT_EQ(y.device(), cuda_device());
  EXPECT_NE(x.device(), cuda_device());
}

TEST(NotesCuda, A068_PropertiesAreAskedOfTheDevice) {
  EXPECT_EQ(get_device_properties(0).name, device_info(cuda_device(0)).name);
  EXPECT_GT(get_device_properties(0).memory_bytes, 0);
}

TEST(NotesCuda, A070_PinnedMemoryIsCopiedAsynchronously) {
  const Tensor x = randn({256, 256}), pinned = pin_memory(x);
  EXPECT_FALSE(x.is_pinned());
  EXPECT_TRUE(pinned.is_pinned());
  const Tensor y = to(pinned, cuda_device(), true);
  synchronize(cuda_device());
  EXPECT_TRUE(equal(to(y, kCpu), x));
}

// The mean of five products, between two moments at which the card has nothing left to do.
TEST(NotesCuda, A071_TimingNeedsSynchronize) {
  const Tensor a = randn({2048, 2048}, {.device = cuda_device()});
  matmul(a, a);
  synchronize(cuda_device());
  const Moment start(kCpu);
  for (int i = 0; i < 5; ++i) matmul(a, a);
  const Moment launched(kCpu);
  synchronize(cuda_device());
  const Moment end(kCpu);
  EXPECT_GT(end.seconds_since(start), launched.seconds_since(start));
  EXPECT_GT(end.seconds_since(start) / 5, 2.0 * 2048 * 2048 * 2048 / 2e15);  // no card multiplies faster
}

TEST(NotesCuda, A072_EventsGiveElapsedTime) {
  const Tensor a = randn({2048, 2048}, {.device = cuda_device()});
  matmul(a, a);
  const Moment start(cuda_device());
  matmul(a, a);
  const Moment end(cuda_device());
  synchronize(cuda_device());
  const double milliseconds = end.seconds_since(start) * 1e3;
  EXPECT_GT(milliseconds, 0);
  EXPECT_LT(milliseconds, 1000);
}

// ---- exchange

TEST(Dlpack, OnTheCardWithoutACopy) {
  const Tensor x = randn({6, 5}, {.device = cuda_device()}), part = slice(transpose(x, 0, 1), 1, 1, 6, 2);
  const int64_t before = memory_allocated(cuda_device());
  const Tensor y = dlpack::from_dlpack(dlpack::to_dlpack(part));
  const Tensor z = dlpack::from_dlpack(dlpack::to_dlpack_versioned(part));
  EXPECT_EQ(memory_allocated(cuda_device()), before);
  EXPECT_EQ(y.data_ptr(), part.data_ptr());
  EXPECT_EQ(y.device(), cuda_device());
  EXPECT_TRUE(equal(y, part) && equal(z, part));
  EXPECT_EQ(dlpack::device_of(pin_memory(zeros({2}))).device_type, dlpack::kDLCUDAHost);
}

}  // namespace
}  // namespace tally
