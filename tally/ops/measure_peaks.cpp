#include "tally/ops/measure_peaks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/matmul.h"

namespace tally {

namespace {

// Median seconds of f() over enough runs to fill about `budget` seconds (at least five).
template <class F>
double median_seconds(double budget, const F& f) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  f();
  for (double spent = 0; times.size() < 5 || (spent < budget && times.size() < 1000);) {
    const auto start = Clock::now();
    f();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    spent += times.back();
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

Tensor filled(const Dims& size, double value) {
  Tensor t = Tensor::empty(size, DType::kF32, kCpu, Category::kWorkspace);
  fill_(t, value);
  return t;
}

// Read + write bandwidth of a copy of `bytes` bytes.
double copy_bandwidth(int64_t bytes, double budget) {
  const Tensor from = filled(Dims(bytes / 4), 1), to = filled(Dims(bytes / 4), 0);
  return 2.0 * static_cast<double>(bytes) / median_seconds(budget, [&] { copy_(to, from); });
}

}  // namespace

Hardware measure_hardware() {
  LedgerGuard ledger;  // not part of anyone's account
  NoGrad quiet;
  LaunchObserver* const observer = set_launch_observer(nullptr);
  Hardware h;
  h.name = fmt::format("{}, {}, {} threads", cpu_model_name(), cpu_isa(), num_threads());
  {
    const Tensor out = filled(Dims(num_threads()), 0);
    const ProbeArgs probe{out.raw(), 20000};
    h.fma_flops = static_cast<double>(probe.cost().matmul_flops) /
                  median_seconds(0.2, [&] { launch(&Kernels::fma_probe, probe); });
  }
  for (int64_t n : {32, 64, 128, 256, 512, 1024}) {
    const Tensor a = filled(Dims(n, n), 0.5), b = filled(Dims(n, n), 0.25);
    const double work = 2.0 * static_cast<double>(n * n * n);
    h.matmul.points.push_back({work, work / median_seconds(0.1, [&] { linear(a, b); })});
  }
  for (int64_t size = int64_t{64} << 10; size <= int64_t{64} << 20; size *= 4)
    h.bytes.points.push_back({2.0 * static_cast<double>(size), copy_bandwidth(size, 0.05)});
  {
    const Tensor x = filled(Dims(256, 512), 0.5);
    h.other_flops =
        static_cast<double>(x.numel()) * unary_flops(UnaryOp::kGeluTanh) / median_seconds(0.1, [&] { gelu_tanh(x); });
  }
  {
    const Tensor x = filled(Dims(1), 0);
    h.launch_seconds = median_seconds(0.02, [&] { relu(x); });
  }
  set_launch_observer(observer);
  release_cached_blocks();
  return h;
}

const Hardware& measured_hardware() {
  static const Hardware hardware = [] {
    const char* anew = std::getenv("TALLY_MEASURE");
    const std::string name = fmt::format("{}, {}, {} threads", cpu_model_name(), cpu_isa(), num_threads());
    if (anew == nullptr || *anew != '1')
      if (std::optional<Hardware> known = cached_hardware(name)) return *known;
    Hardware h = measure_hardware();
    cache_hardware(h);
    return h;
  }();
  return hardware;
}

}  // namespace tally
