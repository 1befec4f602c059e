#include "tally/train/bench_ops.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/base/rng.h"
#include "tally/core/device.h"
#include "tally/core/memory.h"
#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/train/report.h"

namespace tally {

namespace {

constexpr int64_t kMostRounds = 1000;
constexpr int64_t kProbeRounds = 3000;  // of the peak of multiply-adds: about 30 us

constexpr int64_t kMostCopied = int64_t{16} << 30;  // moved by the yardstick; more has the same rate

BenchPlace the_place;

template <class F>
double seconds_of(const F& f, Device device = the_place.device) {
  const Moment start(device);
  f();
  const Moment end(device);
  synchronize(device);
  return end.seconds_since(start);
}

Tensor filled(int64_t elements, Device device = the_place.device) {
  Tensor t = Tensor::empty(Dims(elements), DType::kF32, device, Category::kWorkspace);
  fill_(t, 0.5);
  return t;
}

// What this process reaches now, one measurement of each a round.
class Yardsticks {
 public:
  explicit Yardsticks(int64_t bytes_moved)
      : from_(filled(std::max<int64_t>(1024, bytes_moved / 8))),
        to_(filled(from_.numel())),
        out_(filled(the_place.device.kind == DeviceKind::kCpu ? num_threads() : int64_t{1} << 15)) {}
  void round() {
    copy_seconds_.push_back(seconds_of([&] { copy_(to_, from_); }));
    probe_seconds_.push_back(seconds_of([&] { launch(&Kernels::fma_probe, ProbeArgs{out_.raw(), rounds()}); }));
  }
  // As a machine with one size of copies, that of the case.
  Hardware hardware() const {
    Hardware h;
    const double moved = static_cast<double>(8 * from_.numel());
    h.fma_flops = static_cast<double>(ProbeArgs{out_.raw(), rounds()}.cost().matmul_flops) / median_of(probe_seconds_);
    h.bytes.points = {{moved, moved / median_of(copy_seconds_)}};
    return h;
  }

 private:
  static int64_t rounds() { return the_place.device.kind == DeviceKind::kCpu ? kProbeRounds : 800; }
  Tensor from_, to_, out_;
  std::vector<double> copy_seconds_, probe_seconds_;
};

void clear_gradients(const OpCall& call) {
  for (auto [name, tensor] : call.inputs)
    if (tensor.requires_grad()) tensor.set_grad({});
}

// Forward, and backward with `incoming` where it is defined; the seconds of the forward call.
double run_once(const OpCall& call, const Tensor& incoming) {
  Tensor y;
  double seconds = 0;
  {
    PhaseGuard phase("forward");
    seconds = seconds_of([&] { y = call.forward(); });
  }
  if (!incoming.defined()) return seconds;
  backward(y, incoming);
  clear_gradients(call);
  return seconds;
}

// A gradient for y, of its dtype.
Tensor incoming_for(const Tensor& y) {
  Tensor g = Tensor::empty(y.sizes(), y.dtype(), y.device());
  copy_(g, bench_values(y.sizes(), 99));
  return g;
}

int64_t largest_bytes(const Profile& p) {
  int64_t most = 0;
  for (const ProfileEntry& e : p.entries)
    most = std::max(most, (e.cost.bytes_read + e.cost.bytes_written) / std::max<int64_t>(1, e.launches));
  return most;
}

std::string rate(double per_second) { return fmt::format("{:.1f}", per_second / 1e9); }

}  // namespace

void set_bench_place(const BenchPlace& place) { the_place = place; }
const BenchPlace& bench_place() { return the_place; }

std::vector<OpResult> bench_op(const OpCase& c, const BenchBudget& budget) {
  const LedgerGuard ledger;
  const OpCall call = c.make();
  const bool gradient = budget.gradients && call.gradient;
  std::optional<NoGrad> quiet;
  if (!gradient) quiet.emplace();
  Tensor incoming;
  if (gradient) incoming = incoming_for(call.forward());
  Profiler first(the_place.device), profiler(the_place.device);
  first.begin_step(0);
  run_once(call, incoming);
  first.end_step();
  Yardsticks yardsticks(std::min(kMostCopied, largest_bytes(first.profile(Hardware{}))));
  yardsticks.round();
  std::vector<double> call_seconds;
  double spent = 0;
  for (int64_t i = 0; i < budget.rounds || (spent < budget.seconds && i < kMostRounds); ++i) {
    spent += seconds_of([&] {
      yardsticks.round();
      profiler.begin_step(i);
      call_seconds.push_back(run_once(call, incoming));
      profiler.end_step();
    });
  }
  const Hardware now = yardsticks.hardware();
  std::vector<OpResult> results;
  for (const ProfileEntry& e : profiler.profile(now, Profiler::Average::kMedian).entries)
    results.push_back({e.op, e.phase, c.op, c.shape, c.size, e.seconds, median_of(call_seconds), e.launches,
                       profiler.steps(), e.cost, now.fma_flops, now.bytes.points[0].rate, e.roof_seconds});
  std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.phase > b.phase; });
  return results;
}

std::vector<OpResult> worst_ops(const std::vector<OpResult>& results, size_t count) {
  std::vector<OpResult> sorted = results;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.share_of_roof() < b.share_of_roof(); });
  sorted.resize(std::min(count, sorted.size()));
  return sorted;
}

std::string ops_text(const std::vector<OpResult>& results) {
  std::string text;
  const auto row = [&](const auto& op, const auto& phase, const auto& shape, const auto& time, const auto& flops,
                       const auto& bytes, const auto& copy, const auto& roof) {
    text +=
        fmt::format("{:<23}{:<9}{:<30}{:>10}{:>9}{:>8}{:>8}{:>8}\n", op, phase, shape, time, flops, bytes, copy, roof);
  };
  row("kernel", "", "case", "time", "GFLOP/s", "GB/s", "copy", "of roof");
  for (const OpResult& r : results) {
    const double seconds = std::max(r.seconds, 1e-12);
    row(r.op, r.phase, r.name + " " + r.shape, seconds_text(r.seconds), rate(total_flops(r.cost) / seconds),
        rate(total_bytes(r.cost) / seconds), rate(r.copy_bytes), fmt::format("{:.0f} %", 100 * r.share_of_roof()));
  }
  if (results.empty()) return text;
  std::vector<double> peaks;
  for (const OpResult& r : results) peaks.push_back(r.peak_flops);
  text +=
      fmt::format("peak {} GFLOP/s (multiply-adds in registers, f32); copy: GB/s of a copy that moves as many bytes\n",
                  rate(median_of(peaks)));
  std::string worst;
  for (const OpResult& r : worst_ops(results, 3))
    worst += fmt::format("{}{} ({} {}, {:.0f} %)", worst.empty() ? "" : ", ", r.op, r.name, r.shape,
                         100 * r.share_of_roof());
  return text + "furthest from the roof: " + worst + "\n";
}

Json op_json(const OpResult& r) {
  return Json::object()
      .set("op", r.op)
      .set("phase", r.phase)
      .set("case", r.name)
      .set("shape", r.shape)
      .set("size", r.size)
      .set("seconds", r.seconds)
      .set("call_seconds", r.call_seconds)
      .set("launches", r.launches)
      .set("rounds", r.rounds)
      .set("matmul_flops", r.cost.matmul_flops)
      .set("other_flops", r.cost.other_flops)
      .set("bytes_read", r.cost.bytes_read)
      .set("bytes_written", r.cost.bytes_written)
      .set("peak_flops", r.peak_flops)
      .set("copy_bytes", r.copy_bytes)
      .set("share_of_roof", r.share_of_roof());
}

Tensor bench_values(const Dims& size, uint64_t seed, Category category) {
  return bench_values(size, seed, category, the_place.dtype);
}

namespace {

constexpr int64_t kMadeOnHost = int64_t{1} << 18;  // the rest is copies of it, made where the tensor lies

// t with the values of the first elements again and again.
void repeat_first(const Tensor& t, const Tensor& first) {
  const auto part = [&](int64_t begin, int64_t count) { return t.alias(Dims(count), Dims(1), begin); };
  const int64_t n = t.numel(), piece = first.numel();
  if (n > 0) copy_(part(0, piece), first);
  for (int64_t done = piece; done < n; done *= 2)
    copy_(part(done, std::min(done, n - done)), part(0, std::min(done, n - done)));
}

}  // namespace

Tensor bench_values(const Dims& size, uint64_t seed, Category category, DType dtype) {
  const Tensor t = Tensor::empty(size, dtype, the_place.device, category);
  std::vector<float> first(static_cast<size_t>(std::min(t.numel(), kMadeOnHost)));
  for (size_t i = 0; i < first.size(); ++i) first[i] = uniform_from_u32(random_u32(seed, 0, i)) - 0.5f;
  repeat_first(t, Tensor::from(first, Dims(static_cast<int64_t>(first.size()))));
  return t;
}

Tensor bench_ids(const Dims& size, int64_t limit, uint64_t seed) {
  const Tensor t = Tensor::empty(size, DType::kI32, the_place.device);
  std::vector<int32_t> first(static_cast<size_t>(std::min(t.numel(), kMadeOnHost)));
  for (size_t i = 0; i < first.size(); ++i)
    first[i] = static_cast<int32_t>(random_below(seed, 0, i, static_cast<uint64_t>(limit)));
  repeat_first(t, Tensor::from(first, Dims(static_cast<int64_t>(first.size()))));
  return t;
}

ReadProbe::ReadProbe(int64_t bytes, Device device)
    : buffer_(filled(std::max<int64_t>(ReadProbeArgs::kPiece, bytes / 4), device)),
      out_(filled((buffer_.numel() + ReadProbeArgs::kPiece - 1) / ReadProbeArgs::kPiece, device)) {}

double ReadProbe::seconds() {
  return seconds_of([&] { launch(&Kernels::read_probe, ReadProbeArgs{buffer_.raw(), out_.raw()}); }, buffer_.device());
}

}  // namespace tally
