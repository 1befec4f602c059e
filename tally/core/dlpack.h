// Tensors exchanged with other libraries without a copy: DLPack, https://dmlc.github.io/dlpack/latest/c_api.html (the
// structs below are its binary interface, version 1.1, with 0.x's DLManagedTensor). Python's __dlpack__ hands them on
// in capsules named "dltensor" (DLManagedTensor) and "dltensor_versioned".
//
// Out: the struct holds the tensor, and with it its storage, until the consumer calls `deleter`.
// In: the tensor's storage holds the struct and calls `deleter` when its last tensor is gone (after the card is done).
// Such memory is no block of ours: no ledger and no count of live blocks has it, only external_bytes() (memory.h).
// Order of work on a card is the caller's: before a consumer reads, work on detail::device_stream(index) is waited for,
// which __dlpack__(stream=) and synchronize() do.
#pragma once

#include <cstdint>

#include "tally/core/tensor.h"

namespace tally::dlpack {

enum DeviceType : int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };
enum TypeCode : uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e5m2 = 12,
  kDLFloat8_e8m0fnu = 14,
  kDLFloat4_e2m1fn = 17
};
constexpr uint64_t kReadOnly = 1, kIsCopied = 2, kSubbytePadded = 4;  // DLManagedTensorVersioned::flags

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

// The struct of `x`, whose deleter must be called once. Throws Error for a tensor of meta, one that requires a gradient
// (detach it first) and an undefined one.
DLManagedTensor* to_dlpack(const Tensor& x);
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& x);
// The two numbers of __dlpack_device__().
DLDevice device_of(const Tensor& x);

// A tensor on the struct's memory, which takes the struct over. Throws Error, and takes nothing over, for a version
// above 1, memory that is read-only, a device, dtype or layout (negative strides, more than kMaxRank axes, misaligned
// data) that tensors here do not have.
Tensor from_dlpack(DLManagedTensor* managed);
Tensor from_dlpack(DLManagedTensorVersioned* managed);

}  // namespace tally::dlpack
