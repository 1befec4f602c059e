// tally generate: text from a trained model, streamed to standard output.
#include <cstdio>

#include "cli/verbs.h"
#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/memory.h"
#include "tally/ops/matmul.h"
#include "tally/train/report.h"
#include "tally/train/run_folder.h"
#include "tally/train/sample.h"

namespace tally::cli {
namespace {

struct Generate {
  std::string model, dtype, device = "cpu", matmul = "f32";
  SampleOptions options;
  bool echo = true, json = false, dry_run = false;

  static constexpr const char* kPositional = "prompt";
  static constexpr const char* kDetails =
      "tally generate --model RUN --prompt 'In the beginning' --max-tokens 100 --temperature 0.8 --seed 1\n"
      "RUN is a run directory (its latest checkpoint is used) or one of its checkpoints/step_*.";

  void fields(Fields& f) {
    f("model", model, "folder of a run or of a checkpoint");
    f("prompt", options.prompt, "text to go on from; empty: the start of a document");
    f("max_tokens", options.max_tokens, "most tokens to generate", 0, 1e9);
    options.sampler.fields(f);
    f("dtype", dtype, "of weights and activations; empty: that of the run", {"", "f32", "bf16"});
    f("device", device, "that computes: cpu, cuda or cuda:N");
    f("matmul", matmul, "what CUDA's products of f32 are computed in", {"f32", "tf32"});
    f("stop", options.stop, "strings at which the text ends; they are not printed");
    f("echo", echo, "print the prompt first");
    f("json", json, "one JSON object instead of the text");
    f("dry_run", dry_run, "print what memory it takes and do nothing");
  }

  int run() {
    if (model.empty()) fail("no --model; name the folder of a run or of a checkpoint");
    for (const std::string& stop : options.stop)
      if (stop.empty()) fail("--stop: a stop string is empty");
    if (dry_run) return print_plan();
    const LoadedModel loaded = load_run_model(model, dtype, usable_device());
    std::string text;
    if (echo && !json) write(options.prompt);
    const SampleResult result = generate_text(*loaded.model, loaded.tokenizer, options, [&](std::string_view part) {
      if (json)
        text += part;
      else
        write(part);
    });
    if (json)
      fmt::print("{}\n", Json::object()
                             .set("prompt", options.prompt)
                             .set("text", text)
                             .set("tokens", result.tokens)
                             .set("finish", result.finish)
                             .set("checkpoint", loaded.checkpoint.string())
                             .set("step", loaded.step)
                             .dump());
    else
      write("\n");
    return 0;
  }

 private:
  Device usable_device() const {
    const Device d = device_from_name(device);
    if (d.kind == DeviceKind::kMeta) fail("--device {}: text is generated on cpu, cuda or cuda:N", device);
    require_device(d);
    if (d.kind != DeviceKind::kCuda && matmul != "f32")
      fail("--matmul {}: needs --device cuda; the CPU's products of f32 are f32", matmul);
    set_matmul_precision(matmul_precision_from_name(matmul));
    return d;
  }
  static void write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
      fail_run("standard output cannot be written");
  }

  int print_plan() const {
    FoundModel found = find_run_model(model);
    if (!dtype.empty()) found.config.model.dtype = dtype;
    const LedgerGuard guard;
    const auto planned = make_model(found.config.model, 0, kMetaCpu);
    const int64_t parameters = parameter_count(planned->params());
    planned->pack_weights();
    const int64_t weights = guard.ledger().live_bytes();
    const auto cache = planned->new_cache(1, found.config.model.context);
    const int64_t keys_and_values = guard.ledger().live_bytes() - weights;
    fmt::print("checkpoint            {}\n", found.checkpoint.string());
    fmt::print("parameters            {}\n", with_commas(parameters));
    const auto line = [](const char* name, int64_t bytes) {
      fmt::print("{:<22}{} bytes ({})\n", name, with_commas(bytes), bytes_text(static_cast<double>(bytes)));
    };
    line("memory of the weights", weights);
    line("memory of the cache", keys_and_values);
    return 0;
  }
};

}  // namespace

std::vector<Verb> generate_verbs() { return {make_verb<Generate>("generate", "text from a trained model")}; }

}  // namespace tally::cli
