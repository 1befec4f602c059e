#include "tally/core/dlpack.h"

#include <cstddef>
#include <memory>

#include "tally/base/error.h"
#include "tally/core/device.h"

namespace tally::dlpack {

// The layout that the specification's C header has on 64-bit machines.
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && sizeof(DLManagedTensorVersioned) == 80);

namespace {

struct TypeRow {
  DType dtype;
  DLDataType type;
};
constexpr TypeRow kTypes[] = {{DType::kF64, {kDLFloat, 64, 1}},
                              {DType::kF32, {kDLFloat, 32, 1}},
                              {DType::kF16, {kDLFloat, 16, 1}},
                              {DType::kBF16, {kDLBfloat, 16, 1}},
                              {DType::kF8E4M3, {kDLFloat8_e4m3fn, 8, 1}},
                              {DType::kF8E5M2, {kDLFloat8_e5m2, 8, 1}},
                              {DType::kF8E8M0, {kDLFloat8_e8m0fnu, 8, 1}},
                              {DType::kF4E2M1x2, {kDLFloat4_e2m1fn, 4, 2}},
                              {DType::kI64, {kDLInt, 64, 1}},
                              {DType::kI32, {kDLInt, 32, 1}},
                              {DType::kI16, {kDLInt, 16, 1}},
                              {DType::kI8, {kDLInt, 8, 1}},
                              {DType::kU16, {kDLUInt, 16, 1}},
                              {DType::kU8, {kDLUInt, 8, 1}},
                              {DType::kBool, {kDLBool, 8, 1}}};
static_assert(sizeof kTypes / sizeof kTypes[0] == kDTypes);

DLDataType type_of(DType t) {
  for (const TypeRow& row : kTypes)
    if (row.dtype == t) return row.type;
  return {};
}

DType dtype_of(const DLDataType& t) {
  for (const TypeRow& row : kTypes)
    if (row.type.code == t.code && row.type.bits == t.bits && row.type.lanes == t.lanes) return row.dtype;
  fail_type("from_dlpack: no dtype here is DLPack's type code {} of {} bits and {} lanes", t.code, t.bits, t.lanes);
}

// What a struct that went out holds.
template <class Managed>
struct Held {
  Managed managed;
  Tensor tensor;
  int64_t shape[kMaxRank], strides[kMaxRank];
};

template <class Managed>
Managed* exported(const Tensor& x) {
  if (!x.defined()) fail("to_dlpack: the tensor is undefined");
  if (x.requires_grad()) fail("to_dlpack: a tensor that requires a gradient cannot be exported; use detach()");
  auto held = std::make_unique<Held<Managed>>();
  DLTensor& t = held->managed.dl_tensor;
  t = {x.data_ptr(), device_of(x), x.dim(), type_of(x.dtype()), held->shape, held->strides, 0};
  for (int i = 0; i < x.dim(); ++i) held->shape[i] = x.sizes()[i], held->strides[i] = x.strides()[i];
  held->tensor = x;
  held->managed.manager_ctx = held.get();
  held->managed.deleter = [](Managed* m) { delete static_cast<Held<Managed>*>(m->manager_ctx); };
  return &held.release()->managed;
}

Device device_from(const DLDevice& d) {
  switch (d.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return kCpu;
    case kDLCUDA:
    case kDLCUDAManaged: {
      if (d.device_id < 0 || d.device_id >= 64) fail("from_dlpack: there is no card number {}", d.device_id);
      require_device(cuda_device(d.device_id));
      return cuda_device(d.device_id);
    }
    default:
      fail("from_dlpack: memory of DLPack's device type {}; tensors here are on the CPU and on NVIDIA cards",
           d.device_type);
  }
}

Tensor imported(const DLTensor& t, void* owner, void (*give_back)(void*)) {
  const DType dtype = dtype_of(t.dtype);
  const Device device = device_from(t.device);
  if (t.ndim < 0 || t.ndim > kMaxRank) fail("from_dlpack: {} axes; tensors here have at most {}", t.ndim, kMaxRank);
  Dims size, stride;
  size.rank = stride.rank = t.ndim;
  for (int i = 0; i < t.ndim; ++i) size[i] = t.shape[i];
  for (int i = 0; i < t.ndim; ++i)
    if (size[i] < 0) fail("from_dlpack: a negative size in {}", str(size));
  stride = contiguous_strides(size);
  for (int i = 0; i < t.ndim && t.strides != nullptr; ++i) {
    stride[i] = t.strides[i];
    if (size[i] <= 1 && stride[i] < 0) stride[i] = 1;  // never stepped
    if (stride[i] < 0) fail_value("from_dlpack: axis {} has the negative stride {}; copy it first", i, stride[i]);
  }
  char* const data = static_cast<char*>(t.data) + t.byte_offset;
  bool empty = false;  // without a product, which may be beyond an i64
  for (int i = 0; i < t.ndim; ++i) empty = empty || size[i] == 0;
  if (!empty && t.data == nullptr) fail("from_dlpack: a tensor of shape {} without data", str(size));
  if (!empty && reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(item_size(dtype)) != 0)
    fail_value("from_dlpack: data at {} is not aligned for {}; copy it first", static_cast<void*>(data),
               name_of(dtype));
  return Tensor::external(empty ? nullptr : data, size, stride, dtype, device, t.device.device_type == kDLCUDAHost,
                          owner, give_back);
}

template <class Managed>
void call_deleter(void* owner) {
  auto* const m = static_cast<Managed*>(owner);
  if (m->deleter != nullptr) m->deleter(m);
}

}  // namespace

DLDevice device_of(const Tensor& x) {
  switch (x.device().kind) {
    case DeviceKind::kCpu:
      return {x.is_pinned() ? kDLCUDAHost : kDLCPU, 0};
    case DeviceKind::kCuda:
      return {kDLCUDA, x.device().index};
    default:
      fail("to_dlpack: a {} tensor has no data", name_of(x.device()));
  }
}

DLManagedTensor* to_dlpack(const Tensor& x) { return exported<DLManagedTensor>(x); }

DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& x) {
  DLManagedTensorVersioned* const m = exported<DLManagedTensorVersioned>(x);
  m->version = {1, 1};
  m->flags = 0;
  return m;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  return imported(managed->dl_tensor, managed, call_deleter<DLManagedTensor>);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  if (managed->version.major != 1)
    fail("from_dlpack: DLPack version {}.{}; version 1 is known here", managed->version.major, managed->version.minor);
  if (managed->flags & kReadOnly) fail_value("from_dlpack: the memory is read-only; copy it first");
  if (managed->flags & kSubbytePadded) fail_type("from_dlpack: numbers of less than a byte, padded; pack them first");
  return imported(managed->dl_tensor, managed, call_deleter<DLManagedTensorVersioned>);
}

}  // namespace tally::dlpack
