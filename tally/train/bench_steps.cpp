#include "tally/train/bench_steps.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/base/rng.h"
#include "tally/core/device.h"
#include "tally/models/generate.h"
#include "tally/train/bench_ops.h"
#include "tally/train/pace.h"
#include "tally/train/report.h"
#include "tally/train/step.h"

namespace tally {

namespace {

constexpr int64_t kLeastSteps = 3, kLeastRounds = 3;
constexpr size_t kMostSteps = 10000;

FillBatch random_batches(const RunConfig& c) {
  return [n = c.train.batch * c.context(), v = static_cast<uint64_t>(c.model.vocab_size)](int64_t index, int32_t* ids,
                                                                                          int32_t* targets) {
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t at = static_cast<uint64_t>(2 * (index * n + i));
      ids[i] = static_cast<int32_t>(random_below(1, 0, at, v));
      targets[i] = static_cast<int32_t>(random_below(1, 0, at + 1, v));
    }
  };
}

std::string per_second(double n, const char* unit) { return count_text(n) + unit + "/s"; }

double highest_bandwidth(const Hardware& h) {
  double most = 0;
  for (const RateCurve::Point& p : h.bytes.points) most = std::max(most, p.rate);
  return most;
}

}  // namespace

double StepBench::flops_per_second() const { return static_cast<double>(plan.cost.sum().matmul_flops) / step_seconds; }

StepBench bench_step(const RunConfig& config, const Hardware& hardware, double seconds) {
  StepBench b;
  b.plan = plan_run(config, &hardware);
  b.tokens = config.tokens_per_step();
  const Device device = config.device();
  const CategoryBytes before = blocks_of(device).live_by;
  const LedgerGuard ledger;
  TrainState state(config, device);
  const FillBatch fill = random_batches(config);
  train_step(config, state, fill);
  reset_block_peak(device);
  synchronize(device);
  std::vector<double> times;
  const SteadyTime start = steady_now();
  for (SteadyTime last = start; static_cast<int64_t>(times.size()) < kLeastSteps ||
                                (seconds_since(start) < seconds / 2 && times.size() < kMostSteps);) {
    train_step(config, state, fill);
    times.push_back(seconds_since(last));
    last = steady_now();
  }
  Profiler profiler(device);
  const SteadyTime second = steady_now();
  while (profiler.steps() < kLeastSteps ||
         (seconds_since(second) < seconds / 2 && profiler.steps() < static_cast<int64_t>(kMostSteps))) {
    profiler.begin_step(state.step + 1);
    train_step(config, state, fill);
    profiler.end_step();
  }
  b.peak = blocks_of(device).at_peak;
  for (size_t c = 0; c < kCategories; ++c) b.peak[c] -= before[c];
  b.profile = profiler.profile(hardware);
  b.step_seconds = median_of(times);
  return b;
}

std::string step_text(const RunConfig& config, const StepBench& b) {
  const Hardware& h = *b.plan.hardware;
  std::string text = fmt::format("{} tokens a step ({} x {} x {}), {} parameters, on {}\n", with_commas(b.tokens),
                                 config.train.accumulate, config.train.batch, config.context(),
                                 with_commas(b.plan.parameters), h.name);
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<12}{}\n", name, value);
  };
  line("step", fmt::format("{}, median of {}", seconds_text(b.step_seconds), b.profile.steps));
  line("speed", fmt::format("{:.0f} tokens/s", b.tokens_per_second()));
  line("predicted", fmt::format("{} ({:+.0f} %)", seconds_text(b.plan.step_seconds),
                                100 * (b.plan.step_seconds / b.step_seconds - 1)));
  line("products", fmt::format("{}, {:.1f} % of the peak of {}", per_second(b.flops_per_second(), "FLOP"),
                               100 * b.flops_per_second() / h.fma_flops, per_second(h.fma_flops, "FLOP")));
  line("peak bytes", fmt::format("{}, planned {}", with_commas(total(b.peak)), with_commas(b.plan.step.bytes())));
  for (size_t i = 0; i < 3; ++i)
    line(kStepPhases[i],
         fmt::format("{} in kernels, predicted {}", seconds_text(b.profile.kernel_seconds(kStepPhases[i])),
                     seconds_text(b.plan.phase_seconds[i])));
  return text + profile_text(b.profile);
}

Json step_json(const StepBench& b) {
  return Json::object()
      .set("bench", "train")
      .set("tokens", b.tokens)
      .set("parameters", b.plan.parameters)
      .set("step_seconds", b.step_seconds)
      .set("tokens_per_second", b.tokens_per_second())
      .set("predicted_seconds", b.plan.step_seconds)
      .set("matmul_flops_per_second", b.flops_per_second())
      .set("peak_flops", b.plan.hardware->fma_flops)
      .set("peak_bytes", total(b.peak))
      .set("planned_bytes", b.plan.step.bytes())
      .set("profile", profile_json(b.profile, *b.plan.hardware));
}

Roofline roofline_of(const std::string& title, const StepBench& b) {
  Roofline r;
  r.title = title;
  r.peak_flops = b.plan.hardware->fma_flops;
  r.peak_bytes = highest_bandwidth(*b.plan.hardware);
  for (const ProfileEntry& e : b.profile.entries) {
    const double bytes = total_bytes(e.cost), flops = total_flops(e.cost);
    const std::string name = e.op.ends_with("_" + e.phase) ? e.op : e.op + " " + e.phase;
    r.points.push_back({name, bytes > 0 ? flops / bytes : 0, flops / e.seconds, e.seconds / b.profile.step_seconds});
  }
  return r;
}

DecodeBench bench_decode(const ModelConfig& config, const DecodeOptions& options) {
  DecodeBench b;
  b.dtype = options.dtype;
  ModelConfig c = config;
  c.dtype = options.dtype;
  if (options.prompt + options.tokens > c.context)
    fail("a prompt of {} and {} tokens are beyond the model's context of {}", options.prompt, options.tokens,
         c.context);
  const LedgerGuard guard;
  require_device(options.device);
  const std::unique_ptr<Model> model = make_model(c, 1, options.device);
  b.parameters = parameter_count(model->params());
  model->pack_weights();
  std::vector<int32_t> prompt(static_cast<size_t>(options.prompt));
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>(random_below(2, 0, i, static_cast<uint64_t>(c.vocab_size)));
  SamplerConfig greedy;
  greedy.temperature = 0;
  std::vector<double> token_seconds, read_rates;
  double bytes = 0;
  std::optional<ReadProbe> probe;
  const SteadyTime start = steady_now();
  for (int64_t round = 0; round < kLeastRounds || seconds_since(start) < options.seconds; ++round) {
    SteadyTime last;
    int64_t read = 0, count = 0;
    generate(*model, prompt, options.tokens, greedy, [&](int32_t) {
      const int64_t so_far = guard.ledger().cost().bytes_read;
      if (count++ > 0) token_seconds.push_back(seconds_since(last)), bytes += static_cast<double>(so_far - read);
      read = so_far, last = steady_now();
      return true;
    });
    if (!probe) probe.emplace(static_cast<int64_t>(bytes / static_cast<double>(token_seconds.size())), options.device);
    read_rates.push_back(probe->bytes() / probe->seconds());
  }
  b.tokens = static_cast<int64_t>(token_seconds.size());
  b.token_seconds = median_of(token_seconds);
  b.bytes_read = bytes / static_cast<double>(b.tokens);
  b.bytes_per_second = median_of(read_rates);
  return b;
}

std::string decode_text(const std::vector<DecodeBench>& benches) {
  std::string text = fmt::format("{:<7}{:>14}{:>12}{:>10}{:>16}{:>10}{:>13}{:>10}\n", "dtype", "parameters", "a token",
                                 "tokens/s", "bytes a token", "GB/s", "limit, tok/s", "of limit");
  for (const DecodeBench& b : benches)
    text += fmt::format("{:<7}{:>14}{:>12}{:>10.1f}{:>16}{:>10.1f}{:>13.1f}{:>8.0f} %\n", b.dtype,
                        with_commas(b.parameters), seconds_text(b.token_seconds), b.tokens_per_second(),
                        with_commas(static_cast<int64_t>(b.bytes_read)), b.bytes_per_second / 1e9, b.limit(),
                        100 * b.tokens_per_second() / b.limit());
  return text +
         "limit: a read of as many bytes as a token's launches read, at the bandwidth beside it, measured in turn\n";
}

Json decode_json(const DecodeBench& b) {
  return Json::object()
      .set("bench", "decode")
      .set("dtype", b.dtype)
      .set("parameters", b.parameters)
      .set("tokens", b.tokens)
      .set("token_seconds", b.token_seconds)
      .set("tokens_per_second", b.tokens_per_second())
      .set("bytes_read", b.bytes_read)
      .set("read_bytes_per_second", b.bytes_per_second)
      .set("limit_tokens_per_second", b.limit());
}

}  // namespace tally
