// tally bench ops: every kernel on its own, against this machine's peaks as they are now.
#include <algorithm>

#include "cli/bench.h"
#include "cli/files.h"
#include "cli/verbs.h"
#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/dtype.h"
#include "tally/core/memory.h"
#include "tally/core/tape.h"
#include "tally/io/safetensors.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/view.h"
#include "tally/train/bench_ops.h"

namespace tally::cli {
namespace {

struct BenchOps {
  std::vector<std::string> filter, sizes;
  BenchBudget budget;
  std::string save, device = "cpu", dtype = "f32";
  bool json = false;

  static constexpr const char* kDetails =
      "Forward and backward of each op at sizes of training: cache (1 MiB tensors), memory (as large as the last "
      "cache)\n"
      "and product (matrix products and attention); on a card also large (the tensors of large models).\n"
      "Medians of rounds in which a copy of as many bytes and multiply-adds in registers take their turn; the roof is\n"
      "the longer of FLOPs at that peak and bytes at that bandwidth.";

  void fields(Fields& f) {
    f("filter", filter, "parts of the names of the cases; empty: all");
    f("sizes", sizes, "cache, memory, product, large; empty: all");
    f("seconds", budget.seconds, "of a case", 0, 3600);
    f("rounds", budget.rounds, "at least, of a case", 1, 1e6);
    f("gradients", budget.gradients, "time the backward too");
    f("device", device, "cpu, cuda or cuda:N");
    f("dtype", dtype, "of the cases' floats", {"f32", "bf16"});
    f("save", save, "safetensors file of the cases' inputs and first results, for comparison with other programs");
    f("json", json, "a JSON line a kernel instead of the table");
  }

  int run() {
    const Device place = device_from_name(device);
    if (place.kind == DeviceKind::kMeta) fail("--device {}: use cpu, cuda or cuda:N", device);
    require_device(place);
    set_bench_place({place, dtype_from_name(dtype)});
    const std::vector<OpCase> cases = chosen();
    if (!save.empty()) save_values(cases);
    std::vector<OpResult> all;
    {
      ProgressLine line("bench");
      for (size_t i = 0; i < cases.size(); ++i) {
        if (!json) line.update(static_cast<int64_t>(i), static_cast<int64_t>(cases.size()));
        for (const OpResult& r : bench_op(cases[i], budget)) {
          if (json) fmt::print("{}\n", op_json(r).dump());
          all.push_back(r);
        }
        release_cached_blocks(place);
      }
    }
    if (!json) fmt::print("{}", ops_text(all));
    return 0;
  }

 private:
  std::vector<OpCase> chosen() const {
    for (const std::string& s : sizes)
      if (std::find(std::begin(kBenchSizes), std::end(kBenchSizes), s) == std::end(kBenchSizes))
        fail("--sizes: there is no '{}'; sizes are cache, memory, product and large", s);
    std::vector<OpCase> kept;
    for (OpCase& c : op_cases()) {
      const auto part = [&](const std::string& f) { return (c.op + " " + c.shape).find(f) != std::string::npos; };
      const bool named = filter.empty() || std::any_of(filter.begin(), filter.end(), part);
      if (named && (sizes.empty() || std::find(sizes.begin(), sizes.end(), c.size) != sizes.end()))
        kept.push_back(std::move(c));
    }
    if (kept.empty())
      fail(
          "no case has the name and size asked for (size large is a card's); tally bench ops without --filter and "
          "--sizes names all");
    return kept;
  }

  // Inputs before the first call, as an op may work in place, and its result.
  void save_values(const std::vector<OpCase>& cases) const {
    const NoGrad quiet;
    std::vector<Tensor> kept;
    std::vector<SafeItem> items;
    const auto keep = [&](const std::string& name, const Tensor& t) {
      kept.push_back(t);
      items.push_back({name, t.dtype(), t.sizes(), t.raw().data});
    };
    for (const OpCase& c : cases) {
      const OpCall call = c.make();
      for (const auto& [name, tensor] : call.inputs) {
        const Tensor copy = Tensor::empty(tensor.sizes(), tensor.dtype());
        copy_(copy, tensor);
        keep(fmt::format("{} {}/{}", c.op, c.shape, name), copy);
      }
      keep(fmt::format("{} {}/out", c.op, c.shape), to(contiguous(call.forward()), kCpu));
    }
    write_safetensors(save, items);
  }
};

}  // namespace

std::vector<Verb> bench_verbs() {
  std::vector<Verb> verbs = {make_verb<BenchOps>("bench ops", "every kernel against this machine's peaks"),
                             bench_attention_verb()};
  for (const auto& list : {bench_matmul_verbs(), bench_step_verbs()})
    for (const Verb& verb : list) verbs.push_back(verb);
  return verbs;
}

}  // namespace tally::cli
