// A build with CUDA. The runtime is linked statically and finds the driver itself, so the program also starts where
// there is none.
#include "tally/core/device.h"

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "tally/base/error.h"
#include "tally/core/dtype.h"
#include "tally/core/fault.h"
#include "tally/core/replay.h"

namespace tally {

namespace {

constexpr int kMaxDevices = 64;

// Sets the calling thread's device; cheap when it is that already.
void use(int index) {
  thread_local int current = -1;
  if (current == index) return;
  detail::check_cuda("cudaSetDevice", cudaSetDevice(index));
  current = index;
}

// The stream of every device that was given work.
std::mutex streams_mutex;
std::array<cudaStream_t, kMaxDevices> streams{};
std::array<IndexFault*, kMaxDevices> faults{};

int on_device(Device a, Device b) { return a.kind == DeviceKind::kCuda ? a.index : b.index; }

cudaStream_t stream_of(int index) { return static_cast<cudaStream_t>(detail::device_stream(index)); }

// Throws for the index outside its range that work of the device met, if the host was not told yet. The device is idle
// or has passed that work.
void throw_index_fault(int index) {
  IndexFault found{};
  {
    const std::lock_guard lock(streams_mutex);
    IndexFault* const fault = faults[static_cast<size_t>(index)];
    if (fault == nullptr || *static_cast<volatile int*>(&fault->there) == 0) return;
    found = *fault;
    fault->there = 0;
    detail::check_cuda("cudaMemsetAsync",
                       cudaMemsetAsync(fault->taken, 0, sizeof(unsigned), streams[static_cast<size_t>(index)]));
  }
  fail_index("{}: index {} is not one of 0 to {} (found on cuda:{})", found.op, found.index, found.size - 1, index);
}

}  // namespace

bool built_with_cuda() { return true; }

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // cleared: having no driver is no later call's error
    return 0;
  }
  return count;
}

void require_device(Device d) {
  if (d.kind != DeviceKind::kCuda) return;
  int count = 0;
  if (const cudaError_t e = cudaGetDeviceCount(&count); e != cudaSuccess) {
    cudaGetLastError();
    fail("cuda: {}; use --device cpu, or install NVIDIA's driver (580 or newer)", cudaGetErrorString(e));
  }
  if (d.index >= count) fail("{}{}: this machine has {} CUDA device{}", "cuda:", d.index, count, count == 1 ? "" : "s");
  int major = 0, minor = 0;
  detail::check_cuda("cudaDeviceGetAttribute",
                     cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d.index));
  detail::check_cuda("cudaDeviceGetAttribute",
                     cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d.index));
  if (major * 10 + minor != TALLY_CUDA_ARCHITECTURE)
    fail(
        "cuda:{}: the card has compute capability {}.{} and this build has code for {}.{}; configure with "
        "-DTALLY_CUDA_ARCHITECTURE={}{}",
        d.index, major, minor, TALLY_CUDA_ARCHITECTURE / 10, TALLY_CUDA_ARCHITECTURE % 10, major, minor);
}

void copy_bytes_async(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (to_device.kind == DeviceKind::kMeta || from_device.kind == DeviceKind::kMeta || bytes == 0) return;
  if (to_device.kind == DeviceKind::kCpu && from_device.kind == DeviceKind::kCpu) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  const int index = on_device(to_device, from_device);
  if (detail::replaying) {
    TALLY_ASSERT(to_device.kind == from_device.kind);  // the host's memory is no part of a Replay
    return;
  }
  use(index);
  detail::check_cuda("cudaMemcpyAsync",
                     cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_of(index)));
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  copy_bytes_async(to, to_device, from, from_device, bytes);
  if (bytes == 0 || to_device.kind == from_device.kind) return;
  if (to_device.kind != DeviceKind::kMeta && from_device.kind != DeviceKind::kMeta)
    synchronize(to_device.kind == DeviceKind::kCuda ? to_device : from_device);
}

void synchronize(Device d) {
  detail::wait_for(d);
  if (d.kind == DeviceKind::kCuda) throw_index_fault(d.index);
}

PinnedBytes::PinnedBytes(int64_t bytes, Device device) : bytes_(bytes), device_(device) {
  require_device(device);
  if (bytes == 0) return;
  if (device.kind == DeviceKind::kCuda) use(device.index);
  data_ = device.kind == DeviceKind::kCuda ? detail::pinned_take(bytes) : std::malloc(static_cast<size_t>(bytes));
  if (data_ == nullptr) fail_run("out of memory: the system has no {} bytes for copies", bytes);
}
PinnedBytes::~PinnedBytes() {
  if (device_.kind != DeviceKind::kCuda) {
    std::free(data_);
  } else if (data_ != nullptr) {
    detail::pinned_give(data_);
  }
}

void push_range(const char* name) { nvtxRangePushA(name); }
void pop_range() { nvtxRangePop(); }

Moment::Moment(Device device)
    : device_(device),
      clock_(std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count()) {
  if (device.kind != DeviceKind::kCuda) return;
  const cudaStream_t stream = stream_of(device.index);
  cudaEvent_t event = nullptr;
  detail::check_cuda("cudaEventCreate", cudaEventCreate(&event));
  event_ = event;
  detail::check_cuda("cudaEventRecord", cudaEventRecord(event, stream));
}
Moment::Moment(Moment&& o) noexcept : device_(o.device_), clock_(o.clock_), event_(std::exchange(o.event_, nullptr)) {}
Moment::~Moment() {
  if (event_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event_));
}
double Moment::seconds_since(const Moment& start) const {
  if (event_ == nullptr) return clock_ - start.clock_;
  float milliseconds = 0;
  detail::check_cuda("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(start.event_),
                                                                  static_cast<cudaEvent_t>(event_)));
  return static_cast<double>(milliseconds) * 1e-3;
}

void Moment::wait() const {
  if (event_ == nullptr) return;
  detail::check_cuda("cudaEventSynchronize", cudaEventSynchronize(static_cast<cudaEvent_t>(event_)));
  throw_index_fault(device_.index);
}

DeviceInfo device_info(Device d) {
  require_device(d);
  use(d.index);
  cudaDeviceProp p{};
  detail::check_cuda("cudaGetDeviceProperties", cudaGetDeviceProperties(&p, d.index));
  DeviceInfo info;
  info.name = p.name;
  info.major = p.major, info.minor = p.minor;
  info.multiprocessors = p.multiProcessorCount;
  info.registers = p.regsPerMultiprocessor, info.threads = p.maxThreadsPerMultiProcessor;
  info.shared_bytes = static_cast<int64_t>(p.sharedMemPerMultiprocessor);
  info.block_shared_bytes = static_cast<int64_t>(p.sharedMemPerBlockOptin);
  info.l2_bytes = p.l2CacheSize;
  size_t free = 0, total = 0;
  detail::check_cuda("cudaMemGetInfo", cudaMemGetInfo(&free, &total));
  info.memory_bytes = static_cast<int64_t>(total), info.free_bytes = static_cast<int64_t>(free);
  cudaDeviceGetAttribute(&info.clock_khz, cudaDevAttrClockRate, d.index);
  cudaDeviceGetAttribute(&info.memory_clock_khz, cudaDevAttrMemoryClockRate, d.index);
  info.memory_bus_bits = p.memoryBusWidth;
  cudaDriverGetVersion(&info.driver);
  cudaRuntimeGetVersion(&info.runtime);
  return info;
}

namespace detail {

void wait_for(Device d) {
  if (d.kind != DeviceKind::kCuda) return;
  use(d.index);
  check_cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream_of(d.index)));
}

void* device_take(int index, int64_t bytes) {
  require_device(cuda_device(index));
  use(index);
  void* block = nullptr;
  const cudaError_t e = cudaMalloc(&block, static_cast<size_t>(bytes));
  if (e == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda("cudaMalloc", e);
  return block;
}

void device_give(int index, void* block) {
  use(index);
  cudaStreamSynchronize(stream_of(index));
  cudaFree(block);
}

void* pinned_take(int64_t bytes) {
  void* block = nullptr;
  const cudaError_t e = cudaHostAlloc(&block, static_cast<size_t>(bytes), cudaHostAllocPortable);
  if (e == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda("cudaHostAlloc", e);
  return block;
}

void pinned_give(void* block) {
  {
    const std::lock_guard lock(streams_mutex);
    for (const cudaStream_t s : streams)
      if (s != nullptr) cudaStreamSynchronize(s);
  }
  cudaFreeHost(block);
}

void device_fill(int index, void* block, int byte, int64_t bytes) {
  if (detail::replaying) return;
  use(index);
  check_cuda("cudaMemsetAsync", cudaMemsetAsync(block, byte, static_cast<size_t>(bytes), stream_of(index)));
}

void* device_stream(int index) {
  TALLY_ASSERT(index >= 0 && index < kMaxDevices);
  use(index);
  const std::lock_guard lock(streams_mutex);
  cudaStream_t& s = streams[static_cast<size_t>(index)];
  if (s == nullptr) check_cuda("cudaStreamCreate", cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}

IndexFault* index_fault(int index) {
  TALLY_ASSERT(index >= 0 && index < kMaxDevices);
  const std::lock_guard lock(streams_mutex);
  IndexFault*& fault = faults[static_cast<size_t>(index)];
  if (fault != nullptr) return fault;
  use(index);
  // Launches of a graph may be recorded just now; neither call belongs to a stream.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check_cuda("cudaThreadExchangeStreamCaptureMode", cudaThreadExchangeStreamCaptureMode(&mode));
  void *record = nullptr, *taken = nullptr;
  check_cuda("cudaHostAlloc", cudaHostAlloc(&record, sizeof(IndexFault), cudaHostAllocPortable | cudaHostAllocMapped));
  check_cuda("cudaMalloc", cudaMalloc(&taken, sizeof(unsigned)));
  check_cuda("cudaMemset", cudaMemset(taken, 0, sizeof(unsigned)));
  check_cuda("cudaThreadExchangeStreamCaptureMode", cudaThreadExchangeStreamCaptureMode(&mode));
  return fault = new (record) IndexFault{static_cast<unsigned*>(taken), nullptr, 0, 0, 0};
}

void check_cuda(const char* what, int code) {
  if (code == cudaSuccess) return;
  const auto e = static_cast<cudaError_t>(code);
  cudaGetLastError();
  fail_run("{}: {} ({})", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

}  // namespace detail

}  // namespace tally
