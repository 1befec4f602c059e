// Tensor = storage + view (dtype, sizes, strides, offset) + optional tape node. Copying a Tensor shares all three.
// Names follow PyTorch. Views that record a backward (transpose, slice, ...) are functions in ops/view.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tally/core/dtype.h"
#include "tally/core/memory.h"
#include "tally/core/ref.h"

namespace tally {

class Node;  // tape.h
void retain(Node* node);
void release(Node* node);
class Storage;
void release(Storage* storage);
struct Changes;  // changes.h

// One block of memory, charged to the ledger that was current when it was made.
class Storage {
 public:
  std::atomic<int32_t> references{0};
  // offloaded: counted in the ledger's offloaded_bytes() and not in its live bytes.
  Storage(int64_t bytes, Device device, Category category, bool pinned = false, bool offloaded = false);
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
  // How often the values were changed in place: a tensor saved for a backward must be at the version it was saved at.
  int64_t version() const { return version_; }
  void bump_version() { ++version_; }
  // How many recorded changes other tensors of this storage must learn of, and these (changes.h).
  int32_t changed() const { return changed_; }
  // A number for a tensor that is detached from the others here.
  int32_t new_family() { return 1 + families_.fetch_add(1, std::memory_order_relaxed); }
  // Accounts the block as kept for a backward (Ledger::saved()) from the first saved tensor on it to the last.
  void hold_saved(int scope);
  void drop_saved();

 private:
  friend class Tensor;
  friend void release(Storage* storage);
  void forget_changes();
  int32_t changed_ = 0;  // beside the references: both are read whenever a tensor lets go
  void* data_;
  int64_t bytes_, used_;
  Device device_;
  Category category_;
  bool pinned_, offloaded_;
  int32_t saved_scope_ = 0;
  std::atomic<int32_t> saved_by_{0}, families_{0};
  int64_t version_ = 0;
  std::unique_ptr<Changes> changes_;
  Ref<Ledger> ledger_;
  void* owner_ = nullptr;
  void (*give_back_)(void* owner) = nullptr;
};

inline void release(Storage* storage) {
  if (storage->changed_ != 0) [[unlikely]]
    storage->forget_changes();
  if (storage->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete storage;
}

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
  // What holds a tensor of `device` while it is offloaded: as empty_pinned; of a meta tensor on meta.
  static Tensor empty_offloaded(const Dims& size, DType dtype, Device device);
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
  bool is_contiguous() const { return View{nullptr, size_, stride_, dtype_, {}}.contiguous(); }
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
  Tensor& requires_grad_(bool on = true) { return set_requires_grad(on); }
  bool requires_grad() const { return static_cast<bool>(node()); }
  bool is_leaf() const;        // not made by an op that recorded
  Tensor grad() const;         // of a leaf or after retain_grad(); undefined before the first backward
  void set_grad(Tensor grad);  // undefined clears it
  Tensor& retain_grad();       // backward then keeps grad() of this tensor, which is no leaf
  bool retains_grad() const;
  // The same storage without a node; recorded changes of the one are not the other's.
  Tensor detach() const {
    Tensor other(*this, WithoutNode());
    if (storage_) other.family_ = storage_->new_family(), other.seen_ = storage_->changed();
    return other;
  }
  int64_t version() const { return storage_->version(); }
  const Ref<Node>& node() const {
    if (storage_ && storage_->changed() != seen_) [[unlikely]]
      follow_changes();
    return node_;
  }
  int output_index() const { return node(), output_; }
  void set_node(Ref<Node> node, int output = 0);
  // This tensor, whose node is new, was changed in place: others that show its memory follow when they are next asked
  // for their node. follow(x, changed) gives x's node after the change of `changed`; it comes from ops.
  void publish_change(Tensor (*follow)(const Tensor& x, const Tensor& changed));
  // Made while gradients were off of a tensor that has one: a recorded change of it would be missed.
  bool made_unrecorded() const { return unrecorded_; }

 private:
  friend class Saved;  // saved.h
  struct WithoutNode {};
  Tensor(const Tensor& o, WithoutNode)
      : storage_(o.storage_),
        offset_(o.offset_),
        size_(o.size_),
        stride_(o.stride_),
        dtype_(o.dtype_),
        family_(o.family_),
        seen_(o.seen_) {}
  Tensor(Ref<Storage> storage, int64_t offset, const Dims& size, const Dims& stride, DType dtype)
      : storage_(std::move(storage)), offset_(offset), size_(size), stride_(stride), dtype_(dtype) {}
  friend void bump_version(const Tensor& changed);
  static Tensor made(const Dims& size, DType dtype, Device device, Category category, bool pinned,
                     bool offloaded = false);
  void follow_changes() const;
  Ref<Storage> storage_;
  int64_t offset_ = 0;
  Dims size_, stride_;
  DType dtype_ = DType::kF32;
  bool unrecorded_ = false;
  int32_t family_ = 0;  // tensors of a storage that follow each other's recorded changes
  mutable Ref<Node> node_;
  mutable int output_ = 0;
  mutable int32_t seen_ = 0;  // changes of the storage that the node knows of
};

// On one storage, whatever the offsets.
inline bool same_storage(const Tensor& a, const Tensor& b) { return a.shares_storage(b); }
// Every function that changes values in place calls it, so that a backward can refuse a saved tensor that was changed.
inline void bump_version(const Tensor& changed) {
  if (changed.storage_) changed.storage_->bump_version();
}

Dims contiguous_strides(const Dims& size);

}  // namespace tally
