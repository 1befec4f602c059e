// Tensor = storage + view (dtype, sizes, strides, offset) + optional tape node. Copying a Tensor shares all three.
// Names follow PyTorch. Views that record a backward (transpose, slice, ...) are functions in ops/view.h.
#pragma once

#include <string>
#include <vector>

#include "tally/core/dtype.h"
#include "tally/core/memory.h"
#include "tally/core/ref.h"

namespace tally {

class Node;  // tape.h
void retain(Node* node);
void release(Node* node);

// One block of memory, charged to the ledger that was current when it was made.
class Storage {
 public:
  std::atomic<int32_t> references{0};
  Storage(int64_t bytes, Device device, Category category, bool pinned = false);
  // Memory of another owner, who is told by `give_back(owner)` when the last tensor on it is gone. It is no block of
  // ours: charged to no ledger and in no count but external_bytes().
  Storage(void* data, int64_t bytes, Device device, bool pinned, void* owner, void (*give_back)(void*));
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }  // rounded
  int64_t used() const { return used_; }    // as asked for: what views may reach
  Device device() const { return device_; }
  Category category() const { return category_; }
  bool pinned() const { return pinned_; }  // in page-locked memory
  bool external() const { return give_back_ != nullptr; }

 private:
  void* data_;
  int64_t bytes_, used_;
  Device device_;
  Category category_;
  bool pinned_;
  Ref<Ledger> ledger_;
  void* owner_ = nullptr;
  void (*give_back_)(void* owner) = nullptr;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: no storage

  // Uninitialised, contiguous. Throws Error for a negative size or one beyond the address space.
  static Tensor empty(const Dims& size, DType dtype = DType::kF32, Device device = kCpu,
                      Category category = Category::kActivation);
  // On the CPU in page-locked memory, which a card copies beside its other work; where there is no card, ordinary.
  static Tensor empty_pinned(const Dims& size, DType dtype, Category category = Category::kActivation);
  // On memory of another owner (Storage), from `data` on; strides are not negative.
  static Tensor external(void* data, const Dims& size, const Dims& stride, DType dtype, Device device, bool pinned,
                         void* owner, void (*give_back)(void*));
  // Contiguous copies of host values (CPU only).
  static Tensor from(const std::vector<float>& values, const Dims& size);
  static Tensor from(const std::vector<double>& values, const Dims& size);
  static Tensor from(const std::vector<int32_t>& values, const Dims& size);

  bool defined() const { return static_cast<bool>(storage_); }
  int dim() const { return size_.rank; }
  const Dims& sizes() const { return size_; }
  const Dims& strides() const { return stride_; }
  int64_t size(int axis) const { return size_[normalize_axis(axis, size_.rank, "size")]; }
  int64_t stride(int axis) const { return stride_[normalize_axis(axis, size_.rank, "stride")]; }
  int64_t numel() const { return size_.numel(); }
  int64_t nbytes() const { return numel() * element_size(); }
  int64_t storage_offset() const { return offset_; }
  void* data_ptr() const { return raw().data; }  // of the first element; null on meta
  int64_t storage_bytes() const { return storage_->used(); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  Category category() const { return storage_->category(); }
  int64_t element_size() const { return item_size(dtype_); }
  bool is_pinned() const { return storage_->pinned(); }
  bool is_contiguous() const { return raw().contiguous(); }
  bool shares_storage(const Tensor& o) const { return storage_ == o.storage_; }
  // No other tensor, saved value or view holds this storage.
  bool unique_storage() const { return storage_.unique(); }

  View raw() const;  // for kernels
  template <class T>
  T* data() const {
    return static_cast<T*>(raw().data);
  }
  // Values in logical order (any float or integer dtype), copied from the device; item() needs exactly one element.
  std::vector<double> to_vector() const;
  double item() const;
  // The same as T = bool, float, double, int32_t or int64_t: integers come exactly, where a double has 53 bits.
  template <class T>
  std::vector<T> to_vector() const;
  template <class T>
  T item() const;
  // Whether the one element is not zero; a tensor of more or of no elements is an Error. bool(t) is the same.
  bool is_nonzero() const;
  explicit operator bool() const { return is_nonzero(); }

  // The same storage seen otherwise; not recorded. Bounds are checked against the storage.
  Tensor alias(const Dims& size, const Dims& stride, int64_t offset) const;
  // The bytes seen as another dtype: strides and offset count its elements.
  Tensor alias(DType dtype, const Dims& size, const Dims& stride, int64_t offset) const;

  // Tape.
  Tensor& set_requires_grad(bool on = true);  // leaf tensors of float dtype only
  bool requires_grad() const { return static_cast<bool>(node_); }
  Tensor grad() const;         // of a leaf; undefined before the first backward
  void set_grad(Tensor grad);  // undefined clears it
  Tensor detach() const;       // the same storage without a node
  const Ref<Node>& node() const { return node_; }
  int output_index() const { return output_; }
  void set_node(Ref<Node> node, int output = 0);

 private:
  static Tensor made(const Dims& size, DType dtype, Device device, Category category, bool pinned);
  Ref<Storage> storage_;
  int64_t offset_ = 0;
  Dims size_, stride_;
  DType dtype_ = DType::kF32;
  Ref<Node> node_;
  int output_ = 0;
};

// On one storage, whatever the offsets.
inline bool same_storage(const Tensor& a, const Tensor& b) { return a.shares_storage(b); }
Dims contiguous_strides(const Dims& size);

}  // namespace tally
