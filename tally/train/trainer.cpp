#include "tally/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/ops/matmul.h"
#include "tally/train/environment.h"
#include "tally/train/fit.h"
#include "tally/train/sample.h"

namespace tally {

namespace {

CategoryBytes minus(CategoryBytes a, const CategoryBytes& b) {
  for (size_t c = 0; c < kCategories; ++c) a[c] -= b[c];
  return a;
}

std::optional<ValidationWindows> validation_windows(const RunConfig& config, const RunData& data) {
  if (config.train.eval_every == 0 || data.val.size() == 0) return std::nullopt;
  if (data.val.size() <= config.context())
    fail(
        "{}: its {} validation tokens do not fill a window of {}; build it with more validation text, or turn "
        "validation off by --train.eval_every 0",
        config.data.dir, data.val.size(), config.context());
  return ValidationWindows(data.val.size(), config.train.batch, config.context());
}

// Refuses what would only end in the system's killing the process.
Plan plan_that_fits(const RunConfig& config, const Hardware* hardware, int64_t eval_rows) {
  Plan plan = plan_run(config, hardware, eval_rows);
  const Device device = config.device();
  require_device(device);
  require_fit(config, plan, memory_for_tensors(device), eval_rows);
  return plan;
}

void check_profile(const RunConfig& config, const TrainerOptions& options) {
  if (options.profile_steps == 0) return;
  TALLY_ASSERT(options.hardware != nullptr);
  if (config.train.steps <= options.profile_steps)
    fail("--profile of {} steps begins after the first step: train.steps {} is too few", options.profile_steps,
         config.train.steps);
}

Device prepared_device(const RunConfig& config) {
  require_device(config.device());
  set_matmul_precision(matmul_precision_from_name(config.train.matmul));
  return config.device();
}

TrainWindows train_windows(const RunConfig& config, int64_t n_tokens) {
  const auto seed = static_cast<uint64_t>(config.train.seed);
  const int64_t batch = config.train.batch, context = config.context();
  if (config.data.order == "random") return RandomWindows(seed, n_tokens, batch, context);
  return EpochWindows(seed, n_tokens, batch, context, config.data.order == "shuffle");
}

}  // namespace

RunData::RunData(const std::string& folder, int64_t vocab_size)
    : info(read_data_info(folder)), tokenizer(Tokenizer::load(fs::path(folder) / "tokenizer")) {
  if (tokenizer.hash() != info.tokenizer_hash)
    fail("{}: data.json was made with the tokenizer {}; the folder tokenizer/ is {}", folder, info.tokenizer_hash,
         tokenizer.hash());
  if (vocab_size < tokenizer.vocab_size())
    fail("model.vocab_size {} is smaller than the {} tokens of {}/tokenizer", vocab_size, tokenizer.vocab_size(),
         folder);
  const TokenizerHash hash = tokenizer_hash_from_hex(info.tokenizer_hash, folder + "/data.json");
  const auto open = [&](const char* split) {
    TokenSource source = TokenSource::open(folder, vocab_size, split);
    source.require_tokenizer(hash);
    source.verify();
    return source;
  };
  train = open("train");
  if (info.val.shards > 0) val = open("val");
}

Trainer::Trainer(const RunConfig& config, const TrainerOptions& options)
    : config_((config.check(), check_profile(config, options), config)),
      options_(options),
      data_(config.data.dir, config.model.vocab_size),
      device_(prepared_device(config)),
      baseline_(blocks_of(device_).live_by),
      windows_(train_windows(config, data_.train.size())),
      val_windows_(validation_windows(config, data_)),
      plan_(plan_that_fits(config, options.hardware, eval_rows())),
      folder_(options.out),
      state_(explain_memory(config, plan_, eval_rows(), [&] { return TrainState(config, device_); })),
      saver_(folder_, config.train.keep_last, config.train.checkpoint_minutes),
      pace_(config.time_limit_seconds(), options.start),
      progress_(config.train.steps, options.quiet),
      environment_(environment_json()) {
  open_folder();
  if (options_.profile_steps > 0) profiler_ = std::make_unique<Profiler>(device_);
  reset_block_peak(device_);
}

void Trainer::open_folder() {
  if (!options_.resume) {
    folder_.begin(config_, data_.tokenizer);
  } else {
    folder_.reopen();
    const fs::path from = options_.resume_from.empty() ? folder_.latest() : options_.resume_from;
    if (!from.empty()) {
      const CheckpointState stored = load_checkpoint(from, config_, data_.tokenizer.hash(), data_.train.size(), state_);
      if (stored.step > config_.train.steps)
        fail("{}: is at step {}, beyond train.steps {}", from.string(), stored.step, config_.train.steps);
      best_ = stored.best;
      saved_step_ = stored.step;
      folder_.point_at(stored);
    }
    folder_.write_config(config_);
  }
  metrics_ = std::make_unique<MetricsFile>(folder_.metrics(), state_.step);
  if (config_.train.tensorboard) tensorboard_ = std::make_unique<TensorBoardFile>(folder_.tensorboard(), state_.step);
  // A guess until the first save has been timed.
  pace_.took(Part::kSave, 0.2 + static_cast<double>(checkpoint_bytes(state_.params, *state_.optimizer)) / 200e6);
}

bool Trainer::due(int64_t every, int64_t step) const {
  return every > 0 && (step % every == 0 || step == config_.train.steps);
}

bool Trainer::sample_due(int64_t step) const {
  const int64_t every = config_.train.sample_every;
  return config_.train.sample_tokens > 0 && (every > 0 ? step % every == 0 : step == config_.train.steps);
}

void Trainer::close_stretch(CategoryBytes* highest) {
  const CategoryBytes peak = minus(blocks_of(device_).at_peak, baseline_);
  if (highest != nullptr && total(peak) > total(*highest)) *highest = peak;
  reset_block_peak(device_);
}

void Trainer::step() {
  const bool profiled = profiler_ && measured_.steps > 0 && profiler_->steps() < options_.profile_steps;
  if (profiled) profiler_->begin_step(state_.step + 1);
  const SteadyTime start = steady_now();
  const StepResult result = train_step(config_, state_, [&](int64_t index, int32_t* ids, int32_t* targets) {
    read_data([&] { std::visit([&](const auto& w) { w.fill(data_.train, index, ids, targets); }, windows_); });
  });
  const double seconds = seconds_since(start);
  measured_.step_seconds.add(seconds);
  ++measured_.steps;
  if (profiled) {
    profiler_->end_step();
    if (profiler_->steps() == options_.profile_steps) write_profile();
  }
  pace_.took(Part::kStep, seconds);
  log(result, seconds);
}

int64_t Trainer::eval_batches() const {
  const int64_t all = val_windows_->batches(), asked = config_.train.eval_batches;
  return asked > 0 ? std::min(asked, all) : all;
}

// One step is always made, so that runs of a limit each come to an end.
bool Trainer::time_for_a_step() {
  if (measured_.steps == 0) return true;
  const int64_t next = state_.step + 1;
  const double step = pace_.expected(Part::kStep);
  double seconds = step + pace_.expected(Part::kSave);
  if (val_windows_ && due(config_.train.eval_every, next)) {
    const double known = pace_.expected(Part::kEvaluation);  // a forward is a third of a step
    seconds += known > 0
                   ? known
                   : static_cast<double>(eval_batches()) * step / static_cast<double>(3 * config_.train.accumulate);
  }
  if (sample_due(next)) seconds += std::max(step, pace_.expected(Part::kSample));
  out_of_time_ = !pace_.fits(seconds);
  return !out_of_time_;
}

EvalResult Trainer::evaluate() {
  if (!val_windows_) fail("{}: has no validation text", config_.data.dir);
  const int64_t all = val_windows_->batches(), batches = eval_batches();
  double sum = 0;
  int64_t rows = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const int64_t index = i * all / batches;  // spread evenly: the same windows every time
    state_.load([&](int32_t* ids, int32_t* targets) {
      read_data([&] { val_windows_->fill(data_.val, index, ids, targets); });
    });
    const int64_t n = val_windows_->rows(index);
    sum += evaluate_batch(state_, n) * static_cast<double>(n);
    rows += n;
  }
  EvalResult result;
  result.loss = sum / static_cast<double>(rows);
  const double tokens_per_byte =
      static_cast<double>(data_.info.val.tokens) / static_cast<double>(std::max<int64_t>(1, data_.info.val.bytes));
  result.bits_per_byte = result.loss * tokens_per_byte / std::numbers::ln2;
  return result;
}

bool Trainer::evaluate_and_log() {
  if (!val_windows_) return false;
  close_stretch(&measured_.step);
  const SteadyTime start = steady_now();
  const EvalResult e = evaluate();
  pace_.took(Part::kEvaluation, seconds_since(start));
  close_stretch(&measured_.eval);
  ++measured_.evaluations;
  if (!std::isfinite(e.loss)) {
    const std::string bad = first_bad_tensor(state_.params);
    fail_run("step {}: the validation loss is not finite; first bad tensor: {}", state_.step,
             bad.empty() ? "none of the parameters (an activation overflowed)" : bad);
  }
  record("validation", {{"val_loss", e.loss}, {"bits_per_byte", e.bits_per_byte}});
  say(fmt::format("step {}: validation loss {:.4f} nats a token, {:.4f} bits a byte", state_.step, e.loss,
                  e.bits_per_byte));
  if (best_.step >= 0 && e.loss >= best_.loss) return false;
  candidate_ = {state_.step, e.loss};
  return true;
}

void Trainer::sample() {
  close_stretch(&measured_.step);
  const SteadyTime start = steady_now();
  SampleOptions options;
  options.prompt = config_.train.sample_prompt;
  options.max_tokens = config_.train.sample_tokens;
  options.sampler.temperature = config_.train.sample_temperature;
  options.sampler.seed = config_.train.seed;
  std::string text = options.prompt;
  generate_text(*state_.model, data_.tokenizer, options, [&](std::string_view part) { text += part; });
  close_stretch(nullptr);
  pace_.took(Part::kSample, seconds_since(start));
  metrics_->add(Json::object().set("step", state_.step).set("sample", text));
  if (options_.quiet) return;
  say(fmt::format("step {}: sample", state_.step));
  std::fputs((text + "\n\n").c_str(), stdout);  // fmt::print would throw where nobody listens any more
  std::fflush(stdout);
}

}  // namespace tally
