// tally bench matmul: matrix products as training has them, against the peak of the card or processor.
#include <algorithm>

#include "cli/bench.h"
#include "cli/files.h"
#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/dtype.h"
#include "tally/core/memory.h"
#include "tally/train/bench_matmul.h"

namespace tally::cli {
namespace {

struct BenchMatmul {
  std::string device = "cpu";
  std::vector<std::string> dtypes, filter, shapes;
  int64_t rows = 0, rounds = 9;
  bool json = false;

  static constexpr const char* kDetails =
      "tally bench matmul --device cuda --filter gpt2 --dtypes bf16\n"
      "tally bench matmul --shapes 4096x4096x4096 16x1024x1024\n"
      "The products of GPT-2 124M's and a Llama-336M's layers, forward and backward, and large ones: seconds, TFLOP/s\n"
      "and the share of the dense peak in the card's data sheet (else of the peak measured). Medians; the last cache\n"
      "is flushed before every call.";

  void fields(Fields& f) {
    f("device", device, "cpu, cuda or cuda:N");
    f("dtypes", dtypes, "f32, tf32 (cuda), bf16; empty: all the device has");
    f("filter", filter, "parts of the names of the products, as \"gpt2\" or \"head dw\"; empty: all");
    f("shapes", shapes, "MxNxK in place of the named products");
    f("rows", rows, "tokens of the models' products; 0: 65536 and 32768 on a card, 256 on a processor", 0, 1 << 24);
    f("rounds", rounds, "calls timed of a product", 1, 1e6);
    f("json", json, "a JSON line a product instead of the table");
  }

  int run() {
    const Device place = device_from_name(device);
    if (place.kind == DeviceKind::kMeta) fail("--device {}: use cpu, cuda or cuda:N", device);
    require_device(place);
    const bool cpu = place.kind == DeviceKind::kCpu;
    if (dtypes.empty())
      dtypes = cpu ? std::vector<std::string>{"f32", "bf16"} : std::vector<std::string>{"f32", "tf32", "bf16"};
    for (const std::string& d : dtypes)
      if (d != "f32" && d != "tf32" && d != "bf16") fail("--dtypes: there is no '{}'; they are f32, tf32 and bf16", d);
    const std::vector<MatmulCase> cases = chosen(place);
    std::vector<MatmulResult> all;
    {
      ProgressLine line("bench");
      const auto total = static_cast<int64_t>(cases.size() * dtypes.size());
      for (const std::string& d : dtypes)
        for (const MatmulCase& c : cases) {
          if (!json) line.update(static_cast<int64_t>(all.size()), total);
          all.push_back(bench_matmul(c, d, place, rounds));
          if (json) fmt::print("{}\n", matmul_json(all.back()).dump());
          release_cached_blocks(place);
        }
    }
    if (!json) fmt::print("{}", matmul_text(all));
    return 0;
  }

 private:
  std::vector<MatmulCase> chosen(Device place) const {
    std::vector<MatmulCase> kept;
    for (const std::string& s : shapes) kept.push_back(matmul_case_of(s));
    if (!shapes.empty()) return kept;
    std::vector<MatmulCase> all = large_matmul_cases(place);
    const bool few = rows == 0 && place.kind == DeviceKind::kCpu;
    for (MatmulCase& c : matmul_cases(few ? 256 : rows)) all.push_back(std::move(c));
    for (MatmulCase& c : all) {
      const std::string name = c.name + " " + name_of(c.pass);
      const auto part = [&](const std::string& f) { return name.find(f) != std::string::npos; };
      if (filter.empty() || std::any_of(filter.begin(), filter.end(), part)) kept.push_back(std::move(c));
    }
    if (kept.empty()) fail("--filter: no product has such a name; tally bench matmul lists all");
    return kept;
  }
};

}  // namespace

std::vector<Verb> bench_matmul_verbs() {
  return {make_verb<BenchMatmul>("bench matmul", "matrix products of training against the peak")};
}

}  // namespace tally::cli
