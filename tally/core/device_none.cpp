// A build without CUDA: the CPU alone.
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "tally/base/error.h"
#include "tally/core/device.h"

namespace tally {

namespace {
[[noreturn]] void none() { fail("this build has no CUDA; configure with -DTALLY_CUDA=ON, or use --device cpu"); }
}  // namespace

bool built_with_cuda() { return false; }
void require_device(Device d) {
  if (d.kind == DeviceKind::kCuda) none();
}
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (to_device.kind == DeviceKind::kMeta || from_device.kind == DeviceKind::kMeta || bytes == 0) return;
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void copy_bytes_async(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  copy_bytes(to, to_device, from, from_device, bytes);
}
void synchronize(Device) {}
void detail::wait_for(Device) {}

PinnedBytes::PinnedBytes(int64_t bytes, Device device) : bytes_(bytes), device_(device) {
  require_device(device);
  if (bytes > 0) data_ = std::malloc(static_cast<size_t>(bytes));
  if (bytes > 0 && data_ == nullptr) fail_run("out of memory: the system has no {} bytes for copies", bytes);
}
PinnedBytes::~PinnedBytes() { std::free(data_); }

Moment::Moment(Device device)
    : device_(device),
      clock_(std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count()) {}
Moment::Moment(Moment&& o) noexcept : device_(o.device_), clock_(o.clock_) {}
Moment::~Moment() = default;
double Moment::seconds_since(const Moment& start) const { return clock_ - start.clock_; }
void Moment::wait() const {}

void push_range(const char*) {}
void pop_range() {}

int cuda_device_count() { return 0; }
DeviceInfo device_info(Device) { none(); }

namespace detail {
void* device_take(int, int64_t) { none(); }
void device_give(int, void*) {}
void* pinned_take(int64_t) { none(); }
void pinned_give(void*) {}
void device_fill(int, void*, int, int64_t) { none(); }
void* device_stream(int) { none(); }
void check_cuda(const char*, int) {}
}  // namespace detail

}  // namespace tally
