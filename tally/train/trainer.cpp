#include "tally/train/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>

#include "tally/base/error.h"
#include "tally/train/environment.h"
#include "tally/train/run_report.h"
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
  const double machine = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const double needed = static_cast<double>(std::max(plan.step.bytes(), plan.eval.bytes()));
  if (machine > 0 && needed > machine)
    fail("the plan needs {} at its peak ({}); this machine has {}: lower train.batch or train.context",
         bytes_text(needed), plan.step.moment, bytes_text(machine));
  return plan;
}

void check_profile(const RunConfig& config, const TrainerOptions& options) {
  if (options.profile_steps == 0) return;
  TALLY_ASSERT(options.hardware != nullptr);
  if (config.train.steps <= options.profile_steps)
    fail("--profile of {} steps begins after the first step: train.steps {} is too few", options.profile_steps,
         config.train.steps);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
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
      baseline_(cpu_blocks().live_by),
      windows_(static_cast<uint64_t>(config.train.seed), data_.train.size(), config.train.batch, config.context()),
      val_windows_(validation_windows(config, data_)),
      plan_(plan_that_fits(config, options.hardware, val_windows_ ? val_windows_->rows(0) : 0)),
      folder_(options.out),
      state_(config, kCpu),
      progress_(config.train.steps, options.quiet),
      environment_(environment_json()) {
  open_folder();
  if (options_.profile_steps > 0) profiler_ = std::make_unique<Profiler>(*options_.hardware);
  reset_block_peak();
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
}

bool Trainer::due(int64_t every) const {
  return every > 0 && (state_.step % every == 0 || state_.step == config_.train.steps);
}

bool Trainer::sample_due() const {
  const int64_t every = config_.train.sample_every;
  return every > 0 ? state_.step % every == 0 : state_.step == config_.train.steps;
}

void Trainer::close_stretch(CategoryBytes* highest) {
  const CategoryBytes peak = minus(cpu_blocks().at_peak, baseline_);
  if (highest != nullptr && total(peak) > total(*highest)) *highest = peak;
  reset_block_peak();
}

StepResult Trainer::step() {
  const bool profiled = profiler_ && measured_.steps > 0 && profiler_->steps() < options_.profile_steps;
  if (profiled) profiler_->begin_step(state_.step + 1);
  const double start = seconds_now();
  const StepResult result = train_step(config_, state_, [&](int64_t index, int32_t* ids, int32_t* targets) {
    windows_.fill(data_.train, index, ids, targets);
  });
  measured_.step_seconds.push_back(seconds_now() - start);
  ++measured_.steps;
  if (profiled) {
    profiler_->end_step();
    if (profiler_->steps() == options_.profile_steps) write_profile();
  }
  return result;
}

void Trainer::write_profile() const {
  write_file_atomic(folder_.path() / "profile.json", profiler_->to_json().dump(2) + "\n");
  write_file_atomic(folder_.path() / "trace.json", profiler_->trace().dump() + "\n");
}

void Trainer::log(const StepResult& r) {
  const double seconds = measured_.step_seconds.back();
  smooth_seconds_ = smooth_seconds_ == 0 ? seconds : 0.9 * smooth_seconds_ + 0.1 * seconds;
  seconds_since_log_ += seconds;
  ++steps_since_log_;
  Progress::State p;
  p.step = state_.step, p.loss = r.loss;
  p.tokens_per_second = static_cast<double>(config_.tokens_per_step()) / smooth_seconds_;
  if (options_.hardware)
    p.peak_share = static_cast<double>(plan_.cost.sum().matmul_flops) / smooth_seconds_ / options_.hardware->fma_flops;
  p.seconds_left = smooth_seconds_ * static_cast<double>(config_.train.steps - state_.step);
  progress_.show(p);
  if (state_.step != 1 && !due(config_.train.log_every)) return;
  const double tokens = static_cast<double>(config_.tokens_per_step() * steps_since_log_);
  metrics_->add(Json::object()
                    .set("step", state_.step)
                    .set("loss", r.loss)
                    .set("lr", r.rate)
                    .set("grad_norm", r.grad_norm)
                    .set("tokens_per_second", tokens / seconds_since_log_));
  seconds_since_log_ = 0, steps_since_log_ = 0;
}

EvalResult Trainer::evaluate() {
  if (!val_windows_) fail("{}: has no validation text", config_.data.dir);
  const int64_t all = val_windows_->batches(), asked = config_.train.eval_batches;
  const int64_t batches = asked > 0 ? std::min(asked, all) : all;
  double sum = 0;
  int64_t rows = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const int64_t index = i * all / batches;  // spread evenly
    val_windows_->fill(data_.val, index, state_.ids.data<int32_t>(), state_.targets.data<int32_t>());
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
  const EvalResult e = evaluate();
  close_stretch(&measured_.eval);
  ++measured_.evaluations;
  if (!std::isfinite(e.loss)) {
    const std::string bad = first_bad_tensor(state_.params);
    fail_run("step {}: the validation loss is not finite; first bad tensor: {}", state_.step,
             bad.empty() ? "none of the parameters (an activation overflowed)" : bad);
  }
  metrics_->add(Json::object().set("step", state_.step).set("val_loss", e.loss).set("bits_per_byte", e.bits_per_byte));
  progress_.message(fmt::format("step {}: validation loss {:.4f} nats a token, {:.4f} bits a byte", state_.step, e.loss,
                                e.bits_per_byte));
  if (best_.step >= 0 && e.loss >= best_.loss) return false;
  best_ = {state_.step, e.loss};
  return true;
}

void Trainer::sample() {
  if (config_.train.sample_tokens == 0) return;
  close_stretch(&measured_.step);
  SampleOptions options;
  options.prompt = config_.train.sample_prompt;
  options.max_tokens = config_.train.sample_tokens;
  options.sampler.temperature = config_.train.sample_temperature;
  options.sampler.seed = config_.train.seed;
  std::string text = options.prompt;
  generate_text(*state_.model, data_.tokenizer, options, [&](std::string_view part) { text += part; });
  close_stretch(nullptr);
  metrics_->add(Json::object().set("step", state_.step).set("sample", text));
  if (options_.quiet) return;
  progress_.message(fmt::format("step {}: sample", state_.step));
  fmt::print("{}\n\n", text);
  std::fflush(stdout);
}

void Trainer::save() {
  CheckpointState s;
  s.step = state_.step;
  s.optimizer_steps = state_.optimizer->steps();
  s.data_position = state_.step * config_.train.accumulate;
  s.seed = config_.train.seed;
  s.train_tokens = data_.train.size();
  s.tokenizer_hash = data_.tokenizer.hash();
  s.best = best_;
  s.identity = identity_of(config_);
  metrics_->flush();
  folder_.save(s, state_.params, *state_.optimizer, config_.train.keep_last);
  saved_step_ = state_.step;
}

void Trainer::write_ledger() {
  if (measured_.steps == 0) return;
  close_stretch(&measured_.step);
  measured_.cost = StepCost::of(ledger_.ledger());
  write_file_atomic(folder_.ledger(), ledger_json(plan_, measured_, environment_).dump(2) + "\n");
}

bool Trainer::write_report() {
  try {
    write_file_atomic(folder_.report(), run_report_html(read_run_record(folder_.path()), utc_now()));
    return true;
  } catch (const std::exception& e) {
    progress_.message(fmt::format("the run report was not written: {}", e.what()));
    return false;
  }
}

void Trainer::refresh_report() {
  const double begin = seconds_now();
  if (begin < next_report_) return;
  write_ledger();
  const bool written = write_report();
  const double end = seconds_now();
  next_report_ = written ? end + 49 * (end - begin) : std::numeric_limits<double>::infinity();
}

void Trainer::finish() {
  const bool cut = profiler_ && profiler_->steps() > 0 && profiler_->steps() < options_.profile_steps;
  if (cut) write_profile();
  write_ledger();
  write_report();
}

bool Trainer::run() {
  try {
    const bool complete = loop();
    finish();
    return complete;
  } catch (const RunError&) {  // a loss that is not finite, say: the report shows how it came about
    write_report();
    throw;
  }
}

}  // namespace tally
