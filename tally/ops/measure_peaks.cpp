#include "tally/ops/measure_peaks.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/core/device.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/matmul.h"
#include "tally/ops/norm.h"
#include "tally/ops/reduce.h"

namespace tally {

namespace {

// Where the measuring runs: one at a time.
Device place = kCpu;

bool on_cpu() { return place.kind == DeviceKind::kCpu; }

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

constexpr double kHoldSeconds = 2e-3;

// A card busy for about kHoldSeconds, in which the host gives it what is timed next: neither the host's part of a
// launch nor a clock that has gone down in a pause is measured.
void hold_card() {
  const Tensor out = Tensor::empty(Dims(int64_t{1} << 15), DType::kF32, place, Category::kWorkspace);
  launch(&Kernels::fma_probe, ProbeArgs{out.raw(), 8000});
}

// Median seconds of f() over enough runs to fill about `budget` seconds (at least five). On a card 20 calls lie between
// two of its own time stamps, one right behind the other, as a step's launches do that the host gives in good time.
template <class F>
double median_seconds(double budget, const F& f) {
  const int calls = on_cpu() ? 1 : 20;
  std::vector<double> times;
  f();
  synchronize(place);
  for (double spent = 0; times.size() < 5 || (spent < budget && times.size() < 1000);) {
    if (!on_cpu()) hold_card();
    const Moment start(place);
    for (int i = 0; i < calls; ++i) f();
    const Moment end(place);
    synchronize(place);
    const double seconds = end.seconds_since(start);
    times.push_back(seconds / calls);
    spent += on_cpu() ? seconds : seconds + kHoldSeconds;
  }
  return median(times);
}

Tensor filled(const Dims& size, double value, DType dtype = DType::kF32) {
  Tensor t = Tensor::empty(size, dtype, place, Category::kWorkspace);
  fill_(t, value);
  return t;
}

// Median seconds of f(i), i going round: over one pair of operands, which then stay in the nearest cache, or over so
// many that `spread` bytes lie between two uses.
template <class Make, class F>
double rotating_seconds(int64_t bytes, int64_t spread, double budget, const Make& make, const F& f) {
  std::vector<decltype(make())> operands;
  for (int64_t used = 0; operands.empty() || used < spread; used += bytes) operands.push_back(make());
  size_t i = 0;
  return median_seconds(budget, [&] { f(operands[i++ % operands.size()]); });
}

// What a training step on the CPU touches between two uses of a tensor, at least. A card's cache still has what the
// launch before left in it, and what is larger passes through it either way: no spread there.
constexpr int64_t kStepSpread = int64_t{24} << 20;
// What is computed in.
DType step_dtype() { return on_cpu() ? DType::kF32 : DType::kBF16; }

// Read + write bandwidth of a copy of `bytes` bytes.
double copy_bandwidth(int64_t bytes, int64_t spread, double budget) {
  const double seconds = rotating_seconds(
      2 * bytes, spread, budget, [&] { return std::pair(filled(Dims(bytes / 4), 1), filled(Dims(bytes / 4), 0)); },
      [](const auto& pair) { copy_(pair.second, pair.first); });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

// FLOP/s of an n x n by n x n product.
double matmul_rate(int64_t n, int64_t spread, double budget) {
  const DType dtype = step_dtype();
  const double seconds = rotating_seconds(
      2 * item_size(dtype) * n * n, spread, budget,
      [&] { return std::pair(filled(Dims(n, n), 0.5, dtype), filled(Dims(n, n), 0.25, dtype)); },
      [](const auto& pair) { linear(pair.first, pair.second); });
  return 2.0 * static_cast<double>(n * n * n) / seconds;
}

// A small feed-forward network of four blocks, forward and backward: launches as they come in a training step, whose
// operands another launch has just left and whose helpers may have fallen asleep.
struct SmallStep {
  Tensor x = filled(Dims(768, 128), 0.5);
  Tensor scale = filled(Dims(128), 1), up = filled(Dims(512, 128), 0.01), down = filled(Dims(128, 512), 0.01);

  SmallStep() {
    for (Tensor* t : {&scale, &up, &down}) t->set_requires_grad();
  }
  void run() {
    Tensor y = x;
    for (int block = 0; block < 4; ++block) y = add(y, linear(gelu(linear(rms_norm(y, scale, 1e-5), up)), down));
    backward(mean(square(y)));
    for (Tensor* t : {&scale, &up, &down}) t->set_grad({});
  }
};

// What a launch takes beyond its work by the rates of `h`: the small step's time against the sum of its parts.
double launch_overhead(const Hardware& h) {
  SmallStep step;
  Ledger& ledger = Ledger::current();
  ledger.clear_costs();
  ledger.set_hardware(&h);
  step.run();
  const double work = ledger.predicted_seconds(), launches = static_cast<double>(ledger.launches());
  ledger.set_hardware(nullptr);
  double seconds = median_seconds(0.15, [&] { step.run(); });
  for (int round = 0; round < 3; ++round)  // the quietest of four: other programs only ever add
    seconds = std::min(seconds, median_seconds(0.15, [&] { step.run(); }));
  return (seconds - work) / launches;
}

}  // namespace

namespace {

std::string hardware_name(Device device) {
  if (device.kind == DeviceKind::kCuda) return device_info(device).name;
  return fmt::format("{}, {}, {} threads", cpu_model_name(), cpu_isa(), num_threads());
}

// Sizes that are measured: of square products, and of copies in bytes.
std::vector<int64_t> product_sizes() {
  if (on_cpu()) return {32, 64, 128, 256, 512, 1024};
  return {128, 256, 512, 1024, 2048, 4096, 8192};
}
std::vector<int64_t> copy_sizes() {
  std::vector<int64_t> all;
  for (int64_t n = int64_t{on_cpu() ? 64 : 256} << 10; n <= int64_t{on_cpu() ? 64 : 1024} << 20; n *= 4)
    all.push_back(n);
  return all;
}

}  // namespace

Hardware measure_hardware(Device device) {
  LedgerGuard ledger;  // not part of anyone's account
  LaunchObserver* const observer = set_launch_observer(nullptr);
  place = device;
  Hardware h;
  h.name = hardware_name(device), h.overlaps = !on_cpu();
  {
    const Tensor out = filled(Dims(on_cpu() ? num_threads() : int64_t{1} << 15), 0);
    const ProbeArgs probe{out.raw(), on_cpu() ? 20000 : 800};
    h.fma_flops = static_cast<double>(probe.cost().matmul_flops) /
                  median_seconds(0.2, [&] { launch(&Kernels::fma_probe, probe); });
  }
  for (const int64_t n : product_sizes()) {
    const double work = 2.0 * static_cast<double>(n * n * n);
    h.matmul.points.push_back({work, matmul_rate(n, 0, 0.1)});
    if (on_cpu()) h.step_matmul.points.push_back({work, matmul_rate(n, kStepSpread, 0.1)});
  }
  for (const int64_t size : copy_sizes()) {
    h.bytes.points.push_back({2.0 * static_cast<double>(size), copy_bandwidth(size, 0, 0.05)});
    if (on_cpu())
      h.step_bytes.points.push_back({2.0 * static_cast<double>(size), copy_bandwidth(size, kStepSpread, 0.05)});
  }
  if (!on_cpu()) h.step_matmul = h.matmul, h.step_bytes = h.bytes;
  {
    const Tensor x = filled(Dims(on_cpu() ? 256 : 1 << 14, 512), 0.5, step_dtype());
    h.other_flops =
        static_cast<double>(x.numel()) * unary_flops(UnaryOp::kGeluTanh) / median_seconds(0.1, [&] { gelu_tanh(x); });
  }
  {
    const Tensor x = filled(Dims(1), 0);
    const double one = median_seconds(0.02, [&] { relu(x); });
    h.launch_seconds = on_cpu() ? std::max(one, launch_overhead(h)) : one;
  }
  // "% of peak" is of what products reach at best: on a card those of the tensor cores, which the probe does not use.
  if (!on_cpu())
    for (const RateCurve::Point& p : h.matmul.points) h.fma_flops = std::max(h.fma_flops, p.rate);
  set_launch_observer(observer);
  release_cached_blocks(device);
  place = kCpu;
  return h;
}

const Hardware& measured_hardware(Device device) {
  static std::map<std::string, Hardware> all;
  const std::string name = hardware_name(device);
  if (const auto it = all.find(name); it != all.end()) return it->second;
  const char* anew = std::getenv("TALLY_MEASURE");
  if (anew == nullptr || *anew != '1')
    if (std::optional<Hardware> known = cached_hardware(name);
        known && known->overlaps == (device.kind == DeviceKind::kCuda))  // else of an older version
      return all.emplace(name, *known).first->second;
  Hardware h = measure_hardware(device);
  cache_hardware(h);
  return all.emplace(name, h).first->second;
}

}  // namespace tally
