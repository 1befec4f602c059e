// tally bench attention: forward alone and forward with backward of given shapes, calls back to back, for comparison
// with other programs (bench/attention_vs_torch_cuda.py). TALLY_CUDA_ATTENTION chooses the kernels (docs/cuda.md).
#include <charconv>

#include "cli/bench.h"
#include "tally/base/error.h"
#include "tally/base/json.h"
#include "tally/core/device.h"
#include "tally/core/dtype.h"
#include "tally/core/memory.h"
#include "tally/core/tape.h"
#include "tally/io/safetensors.h"
#include "tally/ops/attention.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/train/bench_ops.h"

namespace tally::cli {
namespace {

struct Shape {
  int64_t length = 0, head_dim = 0;
};

// "1024x64"
Shape shape_of(const std::string& word) {
  Shape s;
  const char* const end = word.data() + word.size();
  const auto [cross, bad] = std::from_chars(word.data(), end, s.length);
  if (bad == std::errc() && cross != end && *cross == 'x' && s.length > 0) {
    const auto [last, wrong] = std::from_chars(cross + 1, end, s.head_dim);
    if (wrong == std::errc() && last == end && s.head_dim > 0) return s;
  }
  fail("--shapes: '{}' is not LENGTHxHEAD_SIZE, as in 1024x64", word);
}

struct BenchAttention {
  std::vector<std::string> shapes = {"1024x64"};
  std::string device = "cpu", dtype = "f32", save;
  int64_t tokens = 16384, hidden = 2048, calls = 10, rounds = 5;
  bool causal = true, json = false;

  static constexpr const char* kDetails =
      "tally bench attention --device cuda --dtype bf16 --shapes 1024x64 4096x64 16384x128\n"
      "Medians over rounds of calls that follow each other without a wait. FLOPs are those of the visible pairs.";

  void fields(Fields& f) {
    f("shapes", shapes, "LENGTHxHEAD_SIZE");
    f("tokens", tokens, "of all sequences; a multiple of each length", 1, 1 << 30);
    f("hidden", hidden, "heads times head size", 1, 1 << 20);
    f("causal", causal, "a query sees the keys up to its own");
    f("calls", calls, "of a round", 1, 1e6);
    f("rounds", rounds, "of each measurement", 1, 1e6);
    f("device", device, "cpu, cuda or cuda:N");
    f("dtype", dtype, "of all tensors", {"f32", "bf16"});
    f("save", save, "safetensors file of the first shape's tensors: q, k, v, grad, out, dq, dk, dv");
    f("json", json, "a JSON line a shape");
  }

  int run() {
    const Device place = device_from_name(device);
    if (place.kind == DeviceKind::kMeta) fail("--device {}: use cpu, cuda or cuda:N", device);
    require_device(place);
    set_bench_place({place, dtype_from_name(dtype)});
    std::vector<Shape> all;
    for (const std::string& word : shapes) all.push_back(shape_of(word));
    for (const Shape& s : all)
      if (tokens % s.length != 0 || hidden % s.head_dim != 0)
        fail("--shapes {}x{}: {} tokens or {} numbers of a token are not a multiple", s.length, s.head_dim, tokens,
             hidden);
    for (size_t i = 0; i < all.size(); ++i) {
      measure(all[i], i == 0);
      release_cached_blocks(place);
    }
    return 0;
  }

 private:
  // `leaf` as the result of an op whose backward drops its gradient.
  static Tensor inner(const Tensor& leaf) {
    Tensor y = leaf.detach();
    record(y, {leaf}, {}, [](Backward& b) { b.take_grad(); });
    return y;
  }
  // Median seconds of a call.
  template <class F>
  double seconds_of(const F& call) const {
    const Device place = bench_place().device;
    call();
    std::vector<double> all;
    for (int64_t round = 0; round < rounds; ++round) {
      const Moment start(place);
      for (int64_t i = 0; i < calls; ++i) call();
      const Moment end(place);
      synchronize(place);
      all.push_back(end.seconds_since(start) / static_cast<double>(calls));
    }
    return median_of(all);
  }

  void measure(const Shape& s, bool first) const {
    const Dims size(tokens / s.length, s.length, hidden / s.head_dim, s.head_dim);
    std::vector<std::pair<const char*, Tensor>> t;
    for (const char* name : {"q", "k", "v", "grad"}) t.emplace_back(name, bench_values(size, t.size() + 1));
    for (int i = 0; i < 3; ++i) t[i].second.set_requires_grad();
    const auto forward = [&] { return attention(t[0].second, t[1].second, t[2].second, causal); };
    // In a model q, k and v are no leaves, whose gradients of bf16 would be widened to f32: their places here are
    // activations that the tape takes from and gives back.
    const auto both = [&] {
      Tensor in[3];
      for (int i = 0; i < 3; ++i) in[i] = inner(t[i].second);
      backward(attention(in[0], in[1], in[2], causal), t[3].second);
    };
    if (first && !save.empty()) save_values(t, forward());
    LedgerGuard ledger;
    double forward_seconds = 0;
    {
      const NoGrad quiet;
      forward();
      forward_seconds = seconds_of(forward);
    }
    const auto flops =
        static_cast<double>(ledger.ledger().cost().matmul_flops) / static_cast<double>(calls * rounds + 2);
    const double both_seconds = seconds_of(both);
    if (json)
      fmt::print("{}\n", Json::object()
                             .set("shape", fmt::format("{}x{}", s.length, s.head_dim))
                             .set("forward_seconds", forward_seconds)
                             .set("seconds", both_seconds)
                             .set("forward_flops", flops)
                             .dump());
    else
      fmt::print("{:>16} forward {:9.3f} ms {:7.1f} TFLOP/s, with backward {:9.3f} ms {:7.1f} TFLOP/s\n", str(size),
                 1e3 * forward_seconds, 1e-12 * flops / forward_seconds, 1e3 * both_seconds,
                 3.5e-12 * flops / both_seconds);
  }

  void save_values(std::vector<std::pair<const char*, Tensor>> t, Tensor out) const {
    t.emplace_back("out", out.detach());
    backward(std::exchange(out, {}), t[3].second);
    for (int i = 0; i < 3; ++i) {
      constexpr const char* kNames[] = {"dq", "dk", "dv"};
      t.emplace_back(kNames[i], t[i].second.grad());
      t[i].second.set_grad({});
    }
    std::vector<SafeItem> items;
    for (auto& [name, tensor] : t) {
      tensor = to(tensor.detach(), kCpu);
      items.push_back({name, tensor.dtype(), tensor.sizes(), tensor.raw().data});
    }
    write_safetensors(save, items);
  }
};

}  // namespace

Verb bench_attention_verb() {
  return make_verb<BenchAttention>("bench attention", "attention at given shapes, calls back to back");
}

}  // namespace tally::cli
