#include "tally/train/bench_matmul.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/measure_peaks.h"
#include "tally/ops/view.h"
#include "tally/train/bench_ops.h"
#include "tally/train/report.h"

namespace tally {

namespace {

using Pass = MatmulCase::Pass;

// The three products of a linear of `rows` inputs of size `in` and outputs of size `out`.
void add_linear(std::vector<MatmulCase>& all, const std::string& name, int64_t rows, int64_t in, int64_t out) {
  all.push_back({name, Pass::kForward, rows, out, in});
  all.push_back({name, Pass::kInputGradient, rows, in, out});
  all.push_back({name, Pass::kWeightGradient, out, in, rows});
}

// Random numbers made on the device from a piece that the host draws: large operands take no time.
Tensor operand(int64_t rows, int64_t columns, DType dtype, Device device, uint64_t seed) {
  const BenchPlace before = bench_place();
  set_bench_place({device, dtype});
  const int64_t n = rows * columns, piece = std::min<int64_t>(n, 1000003), whole = n / piece, rest = n % piece;
  const Tensor some = bench_values(Dims(piece), seed);
  set_bench_place(before);
  Tensor all = Tensor::empty(Dims(1, rows, columns), dtype, device);
  copy_(all.alias(Dims(whole, piece), Dims(piece, 1), 0), some.alias(Dims(whole, piece), Dims(0, 1), 0));
  if (rest > 0) copy_(all.alias(Dims(rest), Dims(1), whole * piece), some.alias(Dims(rest), Dims(1), 0));
  return all;
}

Tensor flipped(const Tensor& x) { return transpose(x, 1, 2); }

// Memory that pushes everything else out of the last cache when it is written.
Tensor flush_memory(Device device) {
  const int64_t cache = device.kind == DeviceKind::kCuda
                            ? device_info(device).l2_bytes
                            : std::clamp<int64_t>(::sysconf(_SC_LEVEL3_CACHE_SIZE), 8 << 20, 64 << 20);
  return Tensor::empty(Dims(cache), DType::kF32, device, Category::kWorkspace);  // four times as large
}

// FLOP/s of dense products by data type, from the vendors' data sheets (half of what they give with sparsity).
struct CardPeaks {
  const char* card;  // how its name begins
  double bf16, tf32, f32;
};
constexpr CardPeaks kCardPeaks[] = {
    {"NVIDIA H200", 989.4e12, 494.7e12, 66.9e12},            // "NVIDIA H200 Tensor Core GPU" data sheet, SXM
    {"NVIDIA H100 80GB HBM3", 989.4e12, 494.7e12, 66.9e12},  // "NVIDIA H100 Tensor Core GPU" data sheet, SXM5
    {"NVIDIA A100", 312e12, 156e12, 19.5e12},                // "NVIDIA A100 Tensor Core GPU" data sheet
};

void set_peak(MatmulResult& r, Device device) {
  if (device.kind == DeviceKind::kCuda) {
    const std::string card = device_info(device).name;
    for (const CardPeaks& p : kCardPeaks)
      if (card.starts_with(p.card)) {
        r.peak_flops = r.dtype == "bf16" ? p.bf16 : r.dtype == "tf32" ? p.tf32 : p.f32;
        r.peak_of = "datasheet";
        return;
      }
  }
  r.peak_flops = measured_hardware(device).fma_flops;
  r.peak_of = "measured";
}

class Precision {  // for as long as it lives
 public:
  explicit Precision(MatmulPrecision p) : before_(matmul_precision()) { set_matmul_precision(p); }
  ~Precision() { set_matmul_precision(before_); }
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

 private:
  MatmulPrecision before_;
};

}  // namespace

const char* name_of(Pass pass) {
  constexpr const char* kNames[] = {"y", "dx", "dw", "ab"};
  return kNames[static_cast<int>(pass)];
}

std::vector<MatmulCase> matmul_cases(int64_t rows) {
  std::vector<MatmulCase> all;
  const int64_t gpt2 = rows > 0 ? rows : 65536, llama = rows > 0 ? rows : 32768;
  add_linear(all, "gpt2 qkv", gpt2, 768, 2304);
  add_linear(all, "gpt2 proj", gpt2, 768, 768);
  add_linear(all, "gpt2 fc", gpt2, 768, 3072);
  add_linear(all, "gpt2 fcproj", gpt2, 3072, 768);
  add_linear(all, "gpt2 head", gpt2, 768, 50304);
  add_linear(all, "llama q", llama, 1024, 1024);
  add_linear(all, "llama kv", llama, 1024, 256);
  add_linear(all, "llama up", llama, 1024, 2816);
  add_linear(all, "llama down", llama, 2816, 1024);
  add_linear(all, "llama head", llama, 1024, 32000);
  return all;
}

std::vector<MatmulCase> large_matmul_cases(Device device) {
  if (device.kind == DeviceKind::kCuda)
    return {{"large", Pass::kPlain, 16384, 8192, 32768}, {"large", Pass::kForward, 8192, 8192, 8192}};
  return {{"large", Pass::kPlain, 1024, 512, 2048}, {"large", Pass::kForward, 1024, 1024, 1024}};
}

MatmulCase matmul_case_of(const std::string& text) {
  MatmulCase c;
  c.name = "asked";
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int64_t* size : {&c.m, &c.n, &c.k}) {
    const auto [next, error] = std::from_chars(at, end, *size);
    const bool last = size == &c.k;
    if (error != std::errc() || *size < 1 || *size > (int64_t{1} << 31) || (last ? next != end : *next != 'x'))
      fail("'{}' is no product; it is written as MxNxK, 4096x4096x1024, each from 1 to 2^31", printable(text));
    at = next + 1;
  }
  return c;
}

MatmulResult bench_matmul(const MatmulCase& p, const std::string& dtype, Device device, int64_t rounds) {
  if (dtype == "tf32" && device.kind != DeviceKind::kCuda)
    fail("tf32 is of CUDA's cards; products on {} are of f32 or bf16", name_of(device));
  const LedgerGuard ledger;
  const Precision precision(dtype == "tf32" ? MatmulPrecision::kTf32 : MatmulPrecision::kF32);
  const DType type = dtype == "bf16" ? DType::kBF16 : DType::kF32;
  const bool weight_gradient = p.pass == Pass::kWeightGradient;
  // As they lie in memory: x and g by rows, w (out, in).
  const Tensor a = weight_gradient ? flipped(operand(p.k, p.m, type, device, 1)) : operand(p.m, p.k, type, device, 1);
  const Tensor b =
      p.pass == Pass::kForward ? flipped(operand(p.n, p.k, type, device, 2)) : operand(p.k, p.n, type, device, 2);
  const Tensor c = Tensor::empty(Dims(1, p.m, p.n), weight_gradient ? DType::kF32 : type, device);
  Tensor flush = flush_memory(device);
  MatmulResult r;
  r.product = p, r.dtype = dtype, r.rounds = rounds;
  std::vector<double> times;
  matmul_(c, a, b, false);  // chooses the algorithm
  for (int64_t i = 0; i < rounds; ++i) {
    fill_(flush, static_cast<double>(i));
    const Moment start(device);
    matmul_(c, a, b, false);
    const Moment end(device);
    synchronize(device);
    times.push_back(end.seconds_since(start));
  }
  r.seconds = std::max(median_of(times), 1e-9);
  set_peak(r, device);
  return r;
}

std::string matmul_text(const std::vector<MatmulResult>& results) {
  std::string text = fmt::format("{:<14}{:<6}{:<24}{:<7}{:>10}{:>10}{:>9}\n", "product", "", "M x N x K", "dtype",
                                 "time", "TFLOP/s", "of peak");
  for (const MatmulResult& r : results) {
    const MatmulCase& p = r.product;
    text += fmt::format("{:<14}{:<6}{:<24}{:<7}{:>10}{:>10}{:>9}\n", p.name, name_of(p.pass),
                        fmt::format("{} x {} x {}", p.m, p.n, p.k), r.dtype, seconds_text(r.seconds),
                        fmt::format("{:.{}f}", r.flops_per_second() / 1e12, r.flops_per_second() < 1e12 ? 3 : 1),
                        fmt::format("{:.1f} %", 100 * r.share_of_peak()));
  }
  std::string peaks;
  for (const char* dtype : {"f32", "tf32", "bf16"})
    for (const MatmulResult& r : results)
      if (r.dtype == dtype) {
        peaks +=
            fmt::format("{}{} {:.3g} TFLOP/s ({})", peaks.empty() ? "" : ", ", dtype, r.peak_flops / 1e12, r.peak_of);
        break;
      }
  return text + "peak: " + peaks + "; y = x w^T, dx = g w, dw = g^T x, ab: both by rows; medians, the cache flushed\n";
}

Json matmul_json(const MatmulResult& r) {
  const MatmulCase& p = r.product;
  return Json::object()
      .set("name", p.name)
      .set("pass", name_of(p.pass))
      .set("m", p.m)
      .set("n", p.n)
      .set("k", p.k)
      .set("dtype", r.dtype)
      .set("seconds", r.seconds)
      .set("rounds", r.rounds)
      .set("tflops", r.flops_per_second() / 1e12)
      .set("peak_tflops", r.peak_flops / 1e12)
      .set("peak_of", r.peak_of)
      .set("share_of_peak", r.share_of_peak());
}

}  // namespace tally
