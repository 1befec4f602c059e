// tally train: a model from a data folder; --resume goes on with a run, --dry-run says what it would take.
#include <algorithm>
#include <csignal>
#include <cstdio>

#include "cli/verbs.h"
#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/ops/measure_peaks.h"
#include "tally/train/trainer.h"

namespace tally::cli {
namespace {

bool has(const std::vector<std::string>& keys, const char* key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

struct Train {
  RunConfig config;
  std::string preset_name, out, resume_from, profile;
  bool resume = false, dry_run = false;
  int64_t stored_steps = 0;  // of the run that is resumed

  static constexpr Alias kAliases[] = {{"data", "data.dir"}};
  static constexpr const char* kDetails =
      "tally train --preset tiny --data DATA --out RUN --steps 200     a new run\n"
      "tally train --out RUN --resume                                  go on with it, to the same bits\n"
      "tally train --preset gpt2 --batch 8 --dry-run                   memory, FLOPs and time of a step; no run\n"
      "Ctrl-C saves and stops. model.vocab_size comes from the data's tokenizer unless it is given.";

  void fields(Fields& f) {
    f("preset", preset_name, "named model", preset_names());
    f("out", out, "folder of the run");
    f("resume", resume, "go on with the run in --out from its latest checkpoint");
    f("resume_from", resume_from, "go on from this checkpoint of the run instead");
    f("dry_run", dry_run, "print the plan and do nothing");
    f("profile", profile, "steps=N: time every kernel of N steps after the first; writes profile.json and trace.json");
    config.fields(f);
  }

  // The defaults that follow from what was asked: the run's configuration, the preset, the size of the vocabulary.
  void prepare(const Train& asked, const std::vector<std::string>& given) {
    const bool resuming = asked.resume || !asked.resume_from.empty();
    if (resuming) {
      config = read_run_config(run_of(asked));
      stored_steps = config.train.steps;
    }
    const int64_t stored_vocab = config.model.vocab_size;
    if (!asked.preset_name.empty()) config.model = preset(asked.preset_name);
    if (has(given, "model.vocab_size")) return;
    if (resuming) {
      config.model.vocab_size = stored_vocab;
    } else if (!asked.config.data.dir.empty()) {
      config.model.vocab_size = read_data_info(asked.config.data.dir).vocab_size;
    }
    const bool described =
        std::any_of(given.begin(), given.end(), [](const auto& k) { return k.starts_with("model."); });
    if (!resuming && asked.preset_name.empty() && !described) {
      std::string names;
      for (const std::string& n : preset_names()) names += (names.empty() ? "" : ", ") + n;
      fail("no --preset and no model.* key; presets are {}", names);
    }
  }

  int run() {
    TrainerOptions options;
    std::signal(SIGPIPE, SIG_IGN);  // a run goes on when nobody reads what it says,
    std::signal(SIGXFSZ, SIG_IGN);  // and a file that may not grow further is an error like a full disk
    config.check();
    const int64_t profile_steps = profile.empty() ? 0 : parse_profile_steps(profile);
    const Device device = config.device();
    if (dry_run) {  // also for a card that is not here, without times then
      const bool here = device.kind == DeviceKind::kCpu || device.index < cuda_device_count();
      fmt::print("{}", plan_text(config, plan_run(config, here ? &measured_hardware(device) : nullptr)));
      return 0;
    }
    require_device(device);
    const Hardware& hardware = measured_hardware(device);
    if (config.data.dir.empty()) fail("no --data; name a folder made by tally data build");
    options.resume = resume || !resume_from.empty();
    options.resume_from = resume_from;
    options.out = run_of(*this);
    options.hardware = &hardware;
    options.profile_steps = profile_steps;
    Trainer trainer(config, options);
    print_start(trainer);
    const bool complete = trainer.run();
    print_end(trainer, complete);
    return 0;
  }

 private:
  static std::string run_of(const Train& asked) {
    if (!asked.out.empty()) return asked.out;
    if (asked.resume_from.empty()) fail("no --out; name the folder of the run");
    fs::path checkpoint = fs::absolute(asked.resume_from).lexically_normal();
    if (!checkpoint.has_filename()) checkpoint = checkpoint.parent_path();
    return checkpoint.parent_path().parent_path().string();
  }

  // fmt::print would throw where stderr is closed or full; a run needs nobody who listens.
  template <class... Args>
  static void say(fmt::format_string<Args...> format, Args&&... args) {
    std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stderr);
  }

  void print_start(const Trainer& t) const {
    const Plan& plan = t.plan();
    const auto from = t.state().step > 0 ? fmt::format("from step {} ", t.state().step) : std::string();
    if (stored_steps > 0 && stored_steps != config.train.steps)
      say("train.steps was {} and is {}: learning rates are those of a run of {} steps from here on\n", stored_steps,
          config.train.steps, config.train.steps);
    say("training {} parameters {}to step {}: {} at the peak, {} a step predicted\n", with_commas(plan.parameters),
        from, config.train.steps, bytes_text(static_cast<double>(plan.step.bytes())), seconds_text(plan.step_seconds));
  }

  void print_end(const Trainer& t, bool complete) const {
    const std::string run = t.folder().path().string();
    if (t.out_of_time()) say("the time limit of {} would be passed by another step\n", config.train.time_limit);
    if (t.measured().steps > 0) fmt::print("{}\n", ledger_table(t.plan(), t.measured()));
    if (t.profiler() != nullptr) {
      fmt::print("{}", profile_text(t.profiler()->profile(measured_hardware(config.device()))));
      if (t.profiler()->steps() > 0) fmt::print("timeline for chrome://tracing: {}/trace.json\n\n", run);
    }
    if (t.best().step >= 0)
      fmt::print("best validation loss {:.4f} nats a token, at step {}\n", t.best().loss, t.best().step);
    fmt::print("run directory: {}\nreport: {}\n", run, t.folder().report().string());
    if (complete) {
      fmt::print("generate: tally generate --model {} --prompt 'TEXT'\n", run);
    } else {
      fmt::print("stopped and saved at step {}; go on by: tally train --out {} --resume\n", t.state().step, run);
    }
  }
};

}  // namespace

std::vector<Verb> train_verbs() { return {make_verb<Train>("train", "train a model on a data folder")}; }

}  // namespace tally::cli
