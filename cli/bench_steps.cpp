// tally bench train | decode | roofline: steps of a configuration on random ids, no data needed.
#include <fmt/core.h>
#include <algorithm>

#include "cli/bench.h"
#include "cli/inspect.h"
#include "tally/base/error.h"
#include "tally/base/file.h"
#include "tally/ops/measure_peaks.h"
#include "tally/train/bench_steps.h"

namespace tally::cli {
namespace {

struct BenchTrain : InspectConfig {
  double seconds = 5;

  static constexpr const char* kDetails =
      "tally bench train --preset gpt2 --batch 1 --context 256\n"
      "Training steps on random ids: speed, the share of the peak, predicted and measured time and memory, and the "
      "time\n"
      "of every kernel.";

  void fields(Fields& f) {
    InspectConfig::fields(f);
    f("seconds", seconds, "to go on for; at least four steps", 0, 1e6);
  }
  void prepare(const BenchTrain& asked, const std::vector<std::string>& given) { InspectConfig::prepare(asked, given); }

  int run() {
    run_config.check();
    const StepBench bench = bench_step(run_config, measured_hardware(usable_device()), seconds);
    if (json)
      fmt::print("{}\n", step_json(bench).dump());
    else
      fmt::print("{}", step_text(run_config, bench));
    return 0;
  }
};

struct BenchDecode : InspectConfig {
  std::vector<std::string> dtypes;
  DecodeOptions options;

  static constexpr const char* kDetails =
      "tally bench decode --preset llama-124m\n"
      "One sequence, random weights packed as for generate, against the bandwidth of a read of the same size.";

  void fields(Fields& f) {
    InspectConfig::fields(f);
    f("dtypes", dtypes, "f32 and bf16 unless given here or by --model.dtype");
    f("prompt", options.prompt, "tokens that are there at the start", 1, 1 << 24);
    f("tokens", options.tokens, "tokens to decode in a round", 2, 1 << 24);
    f("seconds", options.seconds, "to go on for with each dtype; at least three rounds", 0, 1e6);
  }
  void prepare(const BenchDecode& asked, const std::vector<std::string>& given) {
    InspectConfig::prepare(asked, given);
    const bool one = std::find(given.begin(), given.end(), "model.dtype") != given.end();
    dtypes = one ? std::vector<std::string>{asked.run_config.model.dtype} : std::vector<std::string>{"f32", "bf16"};
  }

  int run() {
    run_config.model.check();
    options.device = usable_device();
    for (const std::string& dtype : dtypes)
      if (dtype != "f32" && dtype != "bf16") fail("--dtypes: there is no '{}'; dtypes are f32 and bf16", dtype);
    std::vector<DecodeBench> benches;
    for (const std::string& dtype : dtypes) {
      options.dtype = dtype;
      benches.push_back(bench_decode(run_config.model, options));
      if (json) fmt::print("{}\n", decode_json(benches.back()).dump());
    }
    if (!json) fmt::print("{}", decode_text(benches));
    return 0;
  }
};

struct BenchRoofline : InspectConfig {
  std::string svg;
  double seconds = 5;

  static constexpr const char* kDetails =
      "tally bench roofline --preset llama-30m --batch 8 --svg roofline.svg\n"
      "Every op of a training step under this machine's roof: FLOP/s over FLOPs a byte, areas by time.";

  void fields(Fields& f) {
    InspectConfig::fields(f);
    f("svg", svg, "file to write");
    f("seconds", seconds, "to go on for; at least four steps", 0, 1e6);
  }
  void prepare(const BenchRoofline& asked, const std::vector<std::string>& given) {
    InspectConfig::prepare(asked, given);
  }

  int run() {
    if (svg.empty()) fail("no --svg; name the file to write");
    run_config.check();
    const StepBench bench = bench_step(run_config, measured_hardware(usable_device()), seconds);
    const std::string name = preset_name.empty() ? model_dir.empty() ? "a model" : model_dir : preset_name;
    const std::string title =
        fmt::format("{}: a training step of {} x {} tokens", name, run_config.train.batch, run_config.context());
    write_file_atomic(svg, roofline_svg(roofline_of(title, bench)));
    fmt::print("{}{}\n", profile_text(bench.profile), svg);
    return 0;
  }
};

}  // namespace

std::vector<Verb> bench_step_verbs() {
  return {make_verb<BenchTrain>("bench train", "training steps of a preset: speed, share of the peak, kernels"),
          make_verb<BenchDecode>("bench decode", "decoding against the bandwidth of memory"),
          make_verb<BenchRoofline>("bench roofline", "the ops of a training step under the roof, as SVG")};
}

}  // namespace tally::cli
