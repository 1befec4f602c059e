// What a run writes down and says: metrics.jsonl, TensorBoard, progress, epochs.
#include <cmath>

#include "tally/train/trainer.h"

namespace tally {

double Trainer::epochs(int64_t step) const {
  const double rows = static_cast<double>(step) * static_cast<double>(config_.train.batch * config_.train.accumulate);
  if (const auto* w = std::get_if<EpochWindows>(&windows_)) return rows / static_cast<double>(w->windows());
  return rows * static_cast<double>(config_.context()) / static_cast<double>(data_.train.size());
}

// Windows at random places know no epochs.
void Trainer::say_epoch() {
  const double before = std::floor(epochs(state_.step - 1)), now = std::floor(epochs(state_.step));
  if (now > before && std::holds_alternative<EpochWindows>(windows_))
    say(fmt::format("step {}: {} {} of the training set {} complete", state_.step, now, now == 1 ? "epoch" : "epochs",
                    now == 1 ? "is" : "are"));
}

void Trainer::log(const StepResult& r, double seconds) {
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
  say_epoch();
  if (state_.step != 1 && !due(config_.train.log_every)) return;
  const double tokens = static_cast<double>(config_.tokens_per_step() * steps_since_log_);
  record("train", {{"loss", r.loss},
                   {"lr", r.rate},
                   {"grad_norm", r.grad_norm},
                   {"tokens_per_second", tokens / seconds_since_log_},
                   {"epoch", epochs(state_.step)}});
  seconds_since_log_ = 0, steps_since_log_ = 0;
}

void Trainer::record(const std::string& group, const Numbers& numbers) {
  Json line = Json::object().set("step", state_.step);
  Numbers tagged;
  for (const auto& [name, value] : numbers) {
    line.set(name, value);
    tagged.emplace_back(group + "/" + (name.starts_with("val_") ? name.substr(4) : name), value);
  }
  metrics_->add(line);
  if (tensorboard_) tensorboard_->add(state_.step, tagged);
  say_news();
}

void Trainer::say_news() {
  for (AppendFile* file : {&metrics_->file(), tensorboard_ ? &tensorboard_->file() : nullptr}) {
    if (file == nullptr) continue;
    if (const std::string news = file->news(); !news.empty()) say(news);
  }
}

void Trainer::flush_logs() {
  metrics_->file().flush();
  if (tensorboard_) tensorboard_->file().flush();
  say_news();
}

}  // namespace tally
