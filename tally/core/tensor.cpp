#include "tally/core/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tally/base/error.h"
#include "tally/core/changes.h"
#include "tally/core/device.h"
#include "tally/core/number.h"
#include "tally/core/tape.h"

namespace tally {

namespace {

// Bytes of a contiguous tensor; throws when a size is negative or the product, sizes of 0 aside, is out
// of range.
int64_t checked_bytes(const Dims& size, DType dtype) {
  int64_t n = item_size(dtype);
  bool empty = false;
  for (int i = 0; i < size.rank; ++i) {
    if (size[i] < 0) fail("a tensor cannot have the negative size in {}", str(size));
    empty = empty || size[i] == 0;
    if (__builtin_mul_overflow(n, std::max<int64_t>(size[i], 1), &n) || n > std::numeric_limits<int64_t>::max() / 4)
      fail("a tensor of shape {} and dtype {} is larger than any memory", str(size), name_of(dtype));
  }
  return empty ? 0 : n;
}

template <class T>
Tensor copy_in(const std::vector<T>& values, const Dims& size, DType dtype) {
  if (static_cast<int64_t>(values.size()) * item_size(dtype) != checked_bytes(size, dtype))
    fail("{} values do not fill a tensor of shape {}", values.size(), str(size));
  Tensor t = Tensor::empty(size, dtype);
  if (!values.empty()) std::memcpy(t.data<T>(), values.data(), values.size() * sizeof(T));
  return t;
}

}  // namespace

Storage::Storage(int64_t bytes, Device device, Category category, bool pinned, bool offloaded)
    : data_(pinned ? take_pinned_block(block_bytes(bytes), category)
                   : take_block(device, block_bytes(bytes), category)),
      bytes_(block_bytes(bytes)),
      used_(bytes),
      device_(device),
      category_(category),
      pinned_(pinned),
      offloaded_(offloaded),
      ledger_(&Ledger::current()) {
  offloaded_ ? ledger_->charge_offloaded(bytes_) : ledger_->charge(category_, bytes_);
}

Storage::Storage(void* data, int64_t bytes, Device device, bool pinned, void* owner, void (*give_back)(void*))
    : data_(data),
      bytes_(0),
      used_(bytes),
      device_(device),
      category_(Category::kData),
      pinned_(pinned),
      offloaded_(false),
      owner_(owner),
      give_back_(give_back) {
  count_external(device, bytes);
}

Storage::~Storage() {
  if (give_back_ != nullptr) {
    if (device_.kind == DeviceKind::kCuda) detail::wait_for(device_);  // the owner may not know our order of work
    count_external(device_, -used_);
    give_back_(owner_);
    return;
  }
  offloaded_ ? ledger_->charge_offloaded(-bytes_) : ledger_->charge(category_, -bytes_);
  pinned_ ? give_pinned_block(data_, bytes_, category_) : give_block(device_, data_, bytes_, category_);
}

void Storage::hold_saved(int scope) {
  if (saved_by_.fetch_add(1, std::memory_order_relaxed) > 0 || !ledger_) return;
  saved_scope_ = ledger_.get() == &Ledger::current() ? scope : 0;  // scopes of another ledger have other numbers
  ledger_->charge_saved(saved_scope_, category_, bytes_);
}

void Storage::drop_saved() {
  if (saved_by_.fetch_sub(1, std::memory_order_acq_rel) == 1 && ledger_)
    ledger_->charge_saved(saved_scope_, category_, -bytes_);
}

// Before a tensor lets go: when only saved tensors are left, nobody can ask for the changes any more.
void Storage::forget_changes() {
  if (references.load(std::memory_order_acquire) - 1 > saved_by_.load(std::memory_order_acquire)) return;
  const std::unique_ptr<Changes> gone = std::move(changes_);
}

Dims contiguous_strides(const Dims& size) {
  Dims stride = size;
  uint64_t step = 1;  // sizes beyond memory, which are refused later, may wrap
  for (int i = size.rank - 1; i >= 0; --i) {
    stride[i] = static_cast<int64_t>(step);
    step *= static_cast<uint64_t>(size[i]);
  }
  return stride;
}

Tensor Tensor::empty(const Dims& size, DType dtype, Device device, Category category) {
  return made(size, dtype, device, category, false);
}

Tensor Tensor::empty_pinned(const Dims& size, DType dtype, Category category) {
  return made(size, dtype, kCpu, category, cuda_device_count() > 0);
}

Tensor Tensor::empty_offloaded(const Dims& size, DType dtype, Device device) {
  const bool meta = device.kind == DeviceKind::kMeta;
  return made(size, dtype, meta ? kMetaCpu : kCpu, Category::kActivation, !meta && cuda_device_count() > 0, true);
}

Tensor Tensor::made(const Dims& size, DType dtype, Device device, Category category, bool pinned, bool offloaded) {
  return {Ref<Storage>(new Storage(checked_bytes(size, dtype), device, category, pinned, offloaded)), 0, size,
          contiguous_strides(size), dtype};
}

Tensor Tensor::external(void* data, const Dims& size, const Dims& stride, DType dtype, Device device, bool pinned,
                        void* owner, void (*give_back)(void*)) {
  TALLY_ASSERT(size.rank == stride.rank && give_back != nullptr);
  checked_bytes(size, dtype);
  int64_t last = 0;
  bool inside = true;
  for (int i = 0; i < size.rank; ++i) {
    int64_t reach;
    TALLY_ASSERT(stride[i] >= 0);
    inside = !__builtin_mul_overflow(std::max<int64_t>(size[i] - 1, 0), stride[i], &reach) &&
             !__builtin_add_overflow(last, reach, &last) && inside;
  }
  if (!inside || last > std::numeric_limits<int64_t>::max() / 16)
    fail("a tensor of shape {} with strides {} is larger than any memory", str(size), str(stride));
  const int64_t bytes = size.numel() == 0 ? 0 : (last + 1) * item_size(dtype);
  return {Ref<Storage>(new Storage(data, bytes, device, pinned, owner, give_back)), 0, size, stride, dtype};
}

Tensor Tensor::from(const std::vector<float>& values, const Dims& size) { return copy_in(values, size, DType::kF32); }
Tensor Tensor::from(const std::vector<double>& values, const Dims& size) { return copy_in(values, size, DType::kF64); }
Tensor Tensor::from(const std::vector<int32_t>& values, const Dims& size) { return copy_in(values, size, DType::kI32); }

View Tensor::raw() const {
  TALLY_ASSERT(defined());
  auto* const base = static_cast<char*>(storage_->data());
  return {base == nullptr ? nullptr : base + offset_ * item_size(dtype_), size_, stride_, dtype_, storage_->device()};
}

namespace {

template <class T>
T read_as(const void* p, DType t, int64_t at) {
  if constexpr (std::is_same_v<T, bool>) {
    return read_number(p, t, at) != 0;
  } else {
    if (std::is_integral_v<T> && !is_floating(t)) return static_cast<T>(read_integer(p, t, at));
    return static_cast<T>(read_number(p, t, at));
  }
}

}  // namespace

template <class T>
std::vector<T> Tensor::to_vector() const {
  if (device().kind == DeviceKind::kMeta) fail("a {} tensor has no values to read", name_of(device()));
  View v = raw();
  std::vector<char> host;
  if (device().kind != DeviceKind::kCpu && numel() > 0) {  // the bytes from the first element to the last
    int64_t last = 0;
    for (int i = 0; i < dim(); ++i) last += (size_[i] - 1) * stride_[i];
    host.resize(static_cast<size_t>((last + 1) * element_size()));
    copy_bytes(host.data(), kCpu, v.data, device(), static_cast<int64_t>(host.size()));
    v.data = host.data();
  }
  std::vector<T> out;
  out.reserve(static_cast<size_t>(numel()));
  Dims index;
  index.rank = dim();
  int64_t offset = 0;
  for (int64_t n = numel(); n > 0; --n) {
    out.push_back(read_as<T>(v.data, v.dtype, offset));
    for (int i = dim() - 1; i >= 0; --i) {
      offset += stride_[i];
      if (++index[i] < size_[i]) break;
      offset -= index[i] * stride_[i], index[i] = 0;
    }
  }
  return out;
}

template <class T>
T Tensor::item() const {
  if (numel() != 1) fail("item: a tensor of shape {} has {} elements, not one", str(size_), numel());
  return to_vector<T>()[0];
}

template std::vector<bool> Tensor::to_vector<bool>() const;
template std::vector<float> Tensor::to_vector<float>() const;
template std::vector<double> Tensor::to_vector<double>() const;
template std::vector<int32_t> Tensor::to_vector<int32_t>() const;
template std::vector<int64_t> Tensor::to_vector<int64_t>() const;
template bool Tensor::item<bool>() const;
template float Tensor::item<float>() const;
template double Tensor::item<double>() const;
template int32_t Tensor::item<int32_t>() const;
template int64_t Tensor::item<int64_t>() const;

std::vector<double> Tensor::to_vector() const { return to_vector<double>(); }
double Tensor::item() const { return item<double>(); }

bool Tensor::is_nonzero() const {
  if (numel() != 1)
    fail("the truth of a tensor of {} is ambiguous: shape {}; use any() or all()",
         numel() == 0 ? "no values" : "more than one value", str(size_));
  return item<bool>();
}

Tensor Tensor::alias(const Dims& size, const Dims& stride, int64_t offset) const {
  return alias(dtype_, size, stride, offset);
}

Tensor Tensor::alias(DType dtype, const Dims& size, const Dims& stride, int64_t offset) const {
  TALLY_ASSERT(size.rank == stride.rank);
  int64_t low = offset, high = offset;
  bool inside = true, empty = false;
  for (int i = 0; i < size.rank; ++i) {
    if (size[i] < 0) fail("a view cannot have the negative size in {}", str(size));
    empty = empty || size[i] == 0;
    int64_t reach;
    inside = inside && !__builtin_mul_overflow(size[i] - 1, stride[i], &reach) &&
             !__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high);
  }
  if (!empty && (!inside || low < 0 || high >= storage_->used() / item_size(dtype)))
    fail("a view of shape {} with strides {} at offset {} reaches outside its storage", str(size), str(stride), offset);
  Tensor view(storage_, offset, size, stride, dtype);
  view.family_ = family_, view.seen_ = storage_->changed();
  view.unrecorded_ = unrecorded_ || (NoGrad::active() && requires_grad());
  return view;
}

Tensor& Tensor::set_requires_grad(bool on) {
  if (!on) {
    if (!is_leaf()) fail("only a leaf tensor can be told to require no gradient; use detach() on what an op made");
    node_ = {};
    return *this;
  }
  if (!is_float(dtype_)) fail("a {} tensor cannot require a gradient", name_of(dtype_));
  if (node() && !node_->is_leaf()) fail("only a leaf tensor can be told to require a gradient");
  if (!node_) node_ = Node::make_leaf();
  return *this;
}

bool Tensor::is_leaf() const { return !node() || node_->is_leaf(); }

Tensor Tensor::grad() const { return node() ? node_->kept_grad(output_) : Tensor{}; }

void Tensor::set_grad(Tensor grad) {
  if (!node() || !node_->is_leaf()) fail("grad can be set on a leaf tensor that requires a gradient");
  if (grad.defined() && (grad.sizes() != size_ || grad.device() != device()))
    fail("a gradient of shape {} on {} for a tensor of shape {} on {}", str(grad.sizes()), name_of(grad.device()),
         str(size_), name_of(device()));
  node_->leaf_grad() = std::move(grad);
}

Tensor& Tensor::retain_grad() {
  if (!node()) fail("retain_grad: takes a tensor that requires a gradient");
  if (!node_->is_leaf()) node_->retain_grad(output_);
  return *this;
}

bool Tensor::retains_grad() const { return node() && node_->retains_grad(output_); }

void Tensor::set_node(Ref<Node> node, int output) {
  const bool retained = node_ && node && !node_->is_leaf() && node_->retains_grad(output_);
  node_ = std::move(node), output_ = output;
  if (retained) node_->retain_grad(output_);  // from now on of the new values
  if (storage_) seen_ = storage_->changed();
  unrecorded_ = unrecorded_ && !node_;
}

// ---- recorded changes

namespace {

bool same_place(const Tensor& a, const Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

// The elements of the storage from x's first to behind its last.
std::pair<int64_t, int64_t> reach(const Tensor& x) {
  int64_t low = x.storage_offset(), high = low;
  for (int i = 0; i < x.dim(); ++i) (x.strides()[i] < 0 ? low : high) += (x.sizes()[i] - 1) * x.strides()[i];
  return {low, high + 1};
}

bool meet(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const auto [a_low, a_high] = reach(a);
  const auto [b_low, b_high] = reach(b);
  return a_low < b_high && b_low < a_high;
}

}  // namespace

void Tensor::publish_change(Tensor (*follow)(const Tensor& x, const Tensor& changed)) {
  Storage& s = *storage_;
  if (s.references.load(std::memory_order_acquire) - 1 == s.saved_by_.load(std::memory_order_acquire)) return;
  if (!s.changes_) s.changes_ = std::make_unique<Changes>();
  std::vector<Changes::Change>& all = s.changes_->all;
  if (numel() * element_size() == s.used())  // of everything: what was before does not matter
    std::erase_if(all, [&](const Changes::Change& c) { return c.place.family_ == family_; });
  Tensor place = *this;
  place.storage_ = {};
  seen_ = ++s.changed_;
  all.push_back({s.changed_, std::move(place), follow});
}

void Tensor::follow_changes() const {
  const int32_t known = std::exchange(seen_, storage_->changed());
  if (!storage_->changes_ || (node_ && node_->is_leaf())) return;
  const std::vector<Changes::Change> all = storage_->changes_->all;
  for (const Changes::Change& c : all) {
    if (c.number <= known || c.place.family_ != family_ || c.place.dtype_ != dtype_ || !meet(*this, c.place)) continue;
    Tensor changed = c.place;
    changed.storage_ = storage_, changed.seen_ = seen_;
    Tensor now = *this;
    const Tensor after = same_place(*this, changed) ? changed : c.follow(now, changed);
    now.set_node(after.node_, after.output_);
    node_ = now.node_, output_ = now.output_;
  }
}

}  // namespace tally
