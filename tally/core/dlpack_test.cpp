// DLPack: what goes out comes in again without a copy, lifetimes end once, what cannot be is refused and left to its
// owner.
#include "tally/core/dlpack.h"

#include <cstring>

#include "tally/core/device.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using namespace dlpack;
using test::expect_error;

// A foreign tensor of f32, of another library's memory, which counts how often it was given back.
struct Foreign {
  float data[24] = {};
  int64_t shape[9] = {2, 3, 1, 1, 1, 1, 1, 1, 1}, strides[9] = {3, 1, 1, 1, 1, 1, 1, 1, 1};
  int given_back = 0;
  DLManagedTensor plain = {};
  DLManagedTensorVersioned versioned = {};
  Foreign() {
    for (int i = 0; i < 24; ++i) data[i] = static_cast<float>(i);
    plain.dl_tensor = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
    plain.manager_ctx = this;
    plain.deleter = [](DLManagedTensor* m) { ++static_cast<Foreign*>(m->manager_ctx)->given_back; };
    versioned.version = {1, 0};
    versioned.dl_tensor = plain.dl_tensor;
    versioned.manager_ctx = this;
    versioned.deleter = [](DLManagedTensorVersioned* m) { ++static_cast<Foreign*>(m->manager_ctx)->given_back; };
  }
};

TEST(Dlpack, OutAndInOfEveryDtype) {
  for (int d = 0; d < kDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    const Tensor x = Tensor::empty(Dims(4, 6), dtype);
    std::memset(x.data_ptr(), 1, static_cast<size_t>(x.nbytes()));
    const Tensor part = x.alias(Dims(3, 2), Dims(1, 6), 2);
    const Tensor y = from_dlpack(to_dlpack(part));
    const Tensor z = from_dlpack(to_dlpack_versioned(part));
    for (const Tensor& t : {y, z}) {
      EXPECT_EQ(t.dtype(), dtype);
      EXPECT_EQ(t.data_ptr(), part.data_ptr()) << name_of(dtype);
      EXPECT_EQ(t.sizes(), part.sizes());
      EXPECT_EQ(t.strides(), part.strides());
      EXPECT_EQ(t.to_vector(), part.to_vector());
    }
  }
}

TEST(Dlpack, ExportHoldsTheStorage) {
  const int64_t before = cpu_blocks().live;
  DLManagedTensor* m;
  {
    const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, Dims(2, 3));
    m = to_dlpack(x.alias(Dims(3), Dims(1), 3));
  }
  EXPECT_EQ(cpu_blocks().live, before + 256);
  EXPECT_EQ(static_cast<float*>(m->dl_tensor.data)[2], 6);
  EXPECT_EQ(m->dl_tensor.ndim, 1);
  EXPECT_EQ(m->dl_tensor.device.device_type, kDLCPU);
  m->deleter(m);
  EXPECT_EQ(cpu_blocks().live, before);
}

TEST(Dlpack, ImportHoldsTheOwner) {
  Foreign f, g;
  const int64_t live = Ledger::current().live_bytes(), blocks = cpu_blocks().live, outside = external_bytes();
  {
    Tensor x = from_dlpack(&f.plain), y = from_dlpack(&g.versioned);
    EXPECT_EQ(external_bytes(), outside + 2 * 24);
    Tensor view = x.alias(Dims(3), Dims(1), 3);
    x = {};
    EXPECT_EQ(f.given_back, 0);
    EXPECT_EQ(view.to_vector(), (std::vector<double>{3, 4, 5}));
    view.data<float>()[0] = -1;
    EXPECT_EQ(f.data[3], -1);  // the same memory
    EXPECT_EQ(Ledger::current().live_bytes(), live);
    EXPECT_EQ(cpu_blocks().live, blocks);
    expect_error([&] { y.alias(Dims(7), Dims(1), 0); }, "reaches outside its storage");
    view = {};
    EXPECT_EQ(f.given_back, 1);
  }
  EXPECT_EQ(g.given_back, 1);
  EXPECT_EQ(external_bytes(), outside);
}

TEST(Dlpack, StridesOffsetsAndEmptyTensors) {
  Foreign f;
  f.plain.dl_tensor.strides = nullptr;  // row-major
  f.plain.dl_tensor.byte_offset = 8;
  EXPECT_EQ(from_dlpack(&f.plain).to_vector(), (std::vector<double>{2, 3, 4, 5, 6, 7}));
  Foreign s;
  s.strides[0] = 1, s.strides[1] = 8;
  EXPECT_EQ(from_dlpack(&s.versioned).to_vector(), (std::vector<double>{0, 8, 16, 1, 9, 17}));
  Foreign e;
  e.shape[0] = 0, e.plain.dl_tensor.data = nullptr;
  EXPECT_EQ(from_dlpack(&e.plain).sizes(), Dims(0, 3));
  Foreign r;
  r.plain.dl_tensor.ndim = 0;
  EXPECT_EQ(from_dlpack(&r.plain).sizes(), Dims());
  EXPECT_EQ(f.given_back + s.given_back + e.given_back + r.given_back, 4);
}

TEST(Dlpack, RefusedAndLeftToTheOwner) {
  Foreign f;
  const auto refused = [&](const std::string& part, ErrorKind kind) {
    try {
      from_dlpack(&f.versioned);
      ADD_FAILURE() << "no error; expected " << part;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      EXPECT_EQ(e.kind, kind) << e.what();
    }
    f.versioned.dl_tensor = f.plain.dl_tensor;
    f.versioned.flags = 0, f.versioned.version = {1, 1};
    f.strides[0] = 3, f.shape[0] = 2;
  };
  f.versioned.version = {2, 0};
  refused("version 2.0", ErrorKind::kRuntime);
  f.versioned.flags = kReadOnly;
  refused("read-only", ErrorKind::kValue);
  f.versioned.flags = kSubbytePadded;
  refused("less than a byte", ErrorKind::kType);
  f.versioned.dl_tensor.dtype = {5, 64, 1};  // complex
  refused("type code 5 of 64 bits", ErrorKind::kType);
  f.versioned.dl_tensor.dtype = {kDLFloat, 32, 4};
  refused("4 lanes", ErrorKind::kType);
  f.versioned.dl_tensor.device = {8, 0};  // Metal
  refused("device type 8", ErrorKind::kRuntime);
  f.versioned.dl_tensor.device = {kDLCUDA, 1000};
  refused("no card number 1000", ErrorKind::kRuntime);
  if (!built_with_cuda()) {
    f.versioned.dl_tensor.device = {kDLCUDA, 0};
    refused("this build has no CUDA", ErrorKind::kRuntime);
  }
  f.versioned.dl_tensor.ndim = 9;
  refused("9 axes", ErrorKind::kRuntime);
  f.strides[0] = -3;
  refused("negative stride -3", ErrorKind::kValue);
  f.shape[0] = -2;
  refused("negative size", ErrorKind::kRuntime);
  f.shape[0] = int64_t{1} << 62;
  refused("larger than any memory", ErrorKind::kRuntime);
  f.strides[0] = int64_t{1} << 61;
  refused("larger than any memory", ErrorKind::kRuntime);
  f.versioned.dl_tensor.byte_offset = 2;
  refused("not aligned for f32", ErrorKind::kValue);
  f.versioned.dl_tensor.data = nullptr;
  refused("without data", ErrorKind::kRuntime);
  EXPECT_EQ(f.given_back, 0);

  Tensor x = Tensor::empty(Dims(2));
  x.set_requires_grad();
  expect_error([&] { to_dlpack(x); }, "use detach()");
  expect_error([] { to_dlpack(Tensor::empty(Dims(2), DType::kF32, kMetaCpu)); }, "meta:cpu tensor has no data");
  expect_error([] { to_dlpack_versioned(Tensor()); }, "undefined");
}

}  // namespace
}  // namespace tally
