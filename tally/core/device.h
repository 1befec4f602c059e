// What the host asks of a device beyond tensors' blocks: which there are, copies of bytes, waiting. One of two files
// stands behind it: device_cuda.cpp in a build with CUDA, device_none.cpp in one without.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tally/core/view.h"

namespace tally {

bool built_with_cuda();
// Throws Error in one line for what keeps `d` from working: no CUDA in this build, no driver, a card this build has no
// code for, no card of that number. Does nothing for the CPU and meta.
void require_device(Device d);

// Copies bytes between a device and the host, or within a device, in the order of the device's other work. Returns when
// the host may read `to` or reuse `from`. Does nothing on meta.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
// The same without waiting: the copy is given to the device's order of work. Host memory must be page-locked
// (PinnedBytes, pin_memory) to be copied beside other work, must live until the copy is done, and must neither be
// written, as `from`, nor read, as `to`, until synchronize() or a Moment after it has passed.
void copy_bytes_async(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
// Waits until the device has done all it was given. Throws IndexError for an index outside its range that a kernel met
// since the last time (fault.h); so do copies to the host that wait, and Moment::wait.
void synchronize(Device d);

// Host memory for copies to and from `device`: page-locked where that is a card, ordinary elsewhere. Not counted as
// tensors are. Throws RunError when the system has no such memory.
class PinnedBytes {
 public:
  PinnedBytes() = default;
  PinnedBytes(int64_t bytes, Device device);
  PinnedBytes(PinnedBytes&& o) noexcept { swap(o); }
  PinnedBytes& operator=(PinnedBytes&& o) noexcept {
    swap(o);
    return *this;
  }
  ~PinnedBytes();
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void swap(PinnedBytes& o) noexcept {
    std::swap(data_, o.data_), std::swap(bytes_, o.bytes_), std::swap(device_, o.device_);
  }
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Device device_ = kCpu;
};

// A moment in a device's order of work, for timing it. On the CPU and meta it is the clock's.
class Moment {
 public:
  explicit Moment(Device device);  // now: after the work given so far
  Moment(Moment&& o) noexcept;
  Moment& operator=(Moment&&) = delete;
  ~Moment();
  // Seconds from `start` (of the same device) to here; the work up to here must be done: synchronize() first.
  double seconds_since(const Moment& start) const;
  void wait() const;  // until the device's work up to here is done

 private:
  Device device_;
  double clock_ = 0;
  [[maybe_unused]] void* event_ = nullptr;  // of a build with CUDA
};

// Named ranges on the host's time line for NVIDIA's profilers (NVTX), nested; without one attached they cost some
// nanoseconds, in a build without CUDA nothing.
void push_range(const char* name);
void pop_range();

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;                             // compute capability
  int multiprocessors = 0, registers = 0, threads = 0;  // registers and threads of a multiprocessor
  int64_t shared_bytes = 0, block_shared_bytes = 0;     // of a multiprocessor; most of a block
  int64_t l2_bytes = 0, memory_bytes = 0, free_bytes = 0;
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  int driver = 0, runtime = 0;  // versions: 13000 is 13.0
};
int cuda_device_count();  // 0 without a driver
DeviceInfo device_info(Device d);
// torch.cuda's names: device_count(), is_available(), get_device_properties(i).
inline int device_count() { return cuda_device_count(); }
inline bool is_available() { return cuda_device_count() > 0; }
inline DeviceInfo get_device_properties(int index = 0) { return device_info(cuda_device(index)); }

namespace detail {
// synchronize() for destructors: what kernels met stays for the next one.
void wait_for(Device d);
// Memory of device `index` straight from the driver; null when there is no more.
void* device_take(int index, int64_t bytes);
void device_give(int index, void* block);
// Page-locked host memory that every card can copy; null when there is no more. Needs a card. pinned_give waits for all
// cards, whose copies may still be under way.
void* pinned_take(int64_t bytes);
void pinned_give(void* block);
// In stream order.
void device_fill(int index, void* block, int byte, int64_t bytes);
// The stream that all work of a device is given to: a cudaStream_t.
void* device_stream(int index);
// Throws RunError naming `what` and the CUDA error `code`, if it is one.
void check_cuda(const char* what, int code);
}  // namespace detail

}  // namespace tally
