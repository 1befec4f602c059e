#include "tally/train/fit.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/train/pace.h"
#include "tally/train/report.h"
#include "tally/train/step.h"

namespace tally {

namespace {

constexpr size_t kMostChanges = 3;
constexpr int64_t kShortestContext = 16;
constexpr int64_t kShareOfOthers = 16;  // of memory: what a change leaves for what no plan counts
constexpr double kMostSeconds = 1.5;    // of looking: plans of deep models take long
constexpr int64_t kCublasWorkspace = int64_t{64} << 20;

const Peak& higher(const Plan& plan) { return plan.eval.bytes() > plan.step.bytes() ? plan.eval : plan.step; }

int64_t planned_bytes(const RunConfig& config, int64_t eval_rows) {
  return higher(plan_run(config, nullptr, std::min(eval_rows, config.train.batch))).bytes();
}

// Batches with which a step can have as many sequences as now, rising.
std::vector<int64_t> batches_of(const RunConfig& config) {
  const int64_t sequences = config.train.batch * config.train.accumulate;
  std::vector<int64_t> all;
  const auto add = [&](int64_t b) {
    if (b <= config.train.batch && sequences / b <= kMostAccumulate) all.push_back(b);
  };
  for (int64_t b = 1; b * b <= sequences; ++b)
    if (sequences % b == 0) add(b), add(sequences / b);
  std::sort(all.begin(), all.end());
  return all;
}

// `config` with the largest batch that fits; the memory of a step rises with the batch.
std::optional<Change> with_batch(const RunConfig& config, int64_t available, int64_t eval_rows, SteadyTime until) {
  const auto planned = [&](int64_t batch) {
    Change c{"", config, 0};
    c.config.train.accumulate = config.train.accumulate * config.train.batch / batch;
    c.config.train.batch = batch;
    c.bytes = planned_bytes(c.config, eval_rows);
    return c;
  };
  const std::vector<int64_t> batches = batches_of(config);
  if (batches.empty()) return std::nullopt;
  if (Change whole = planned(batches.back()); whole.bytes <= available) return whole;
  std::optional<Change> best;
  for (size_t low = 0, high = batches.size() - 1;
       low < high && steady_now() < until;) {           // below low all fit, from high on none
    const size_t middle = best ? (low + high) / 2 : 0;  // most often not even the smallest does
    Change c = planned(batches[middle]);
    if (c.bytes > available) {
      high = middle;
    } else {
      best = std::move(c), low = middle + 1;
    }
  }
  return best;
}

// What tells `to` from `from`, as flags.
std::string flags_between(const RunConfig& from, const RunConfig& to) {
  std::string flags;
  const auto add = [&](const char* name, const auto& a, const auto& b) {
    if (a != b) flags += fmt::format("{}--{} {}", flags.empty() ? "" : " ", name, b);
  };
  add("model.dtype", from.model.dtype, to.model.dtype);
  add("model.context", from.model.context, to.model.context);
  add("train.context", from.train.context, to.train.context);
  add("train.batch", from.train.batch, to.train.batch);
  add("train.accumulate", from.train.accumulate, to.train.accumulate);
  return flags;
}

std::string joined(const std::string& a, const std::string& b) { return a + (a.empty() || b.empty() ? "" : " ") + b; }

bool same_structure(const ModelConfig& a, const ModelConfig& b) {
  return a.n_layers == b.n_layers && a.d_model == b.d_model && a.n_heads == b.n_heads && a.n_kv_heads == b.n_kv_heads &&
         a.d_ff == b.d_ff && a.norm == b.norm && a.activation == b.activation && a.position == b.position &&
         a.bias == b.bias && a.tied == b.tied;
}

// `config` with presets of its model's family that have fewer parameters, the largest first, as the flags say it; none
// where the model is no preset itself.
std::vector<Change> smaller_presets(const RunConfig& config) {
  const ModelConfig& model = config.model;
  std::vector<Change> all;
  bool known = false;
  for (const std::string& name : preset_names()) {
    const ModelConfig own = preset(name);
    known = known || same_structure(own, model);
    Change c{"--preset " + name, config, 0};
    c.config.model = own;
    c.config.model.vocab_size = model.vocab_size, c.config.model.context = model.context;
    c.config.model.dtype = model.dtype, c.config.model.dropout = model.dropout;
    RunConfig named = config;
    named.model = own;
    c.flags = joined(c.flags, flags_between(named, c.config));
    if (own.norm == model.norm && own.activation == model.activation && own.position == model.position &&
        parameter_count(c.config.model) < parameter_count(model))
      all.push_back(std::move(c));
  }
  std::stable_sort(all.begin(), all.end(), [](const Change& a, const Change& b) {
    return parameter_count(a.config.model) > parameter_count(b.config.model);
  });
  if (!known) all.clear();
  return all;
}

}  // namespace

int64_t memory_for_tensors(Device device) {
  if (device.kind == DeviceKind::kCuda) return std::max<int64_t>(1, device_info(device).free_bytes - kCublasWorkspace);
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<int64_t>(pages) * page : 0;
}

std::vector<Change> changes_that_fit(const RunConfig& config, int64_t available, int64_t eval_rows) {
  std::vector<Change> found;
  const SteadyTime until =
      steady_now() + std::chrono::duration_cast<SteadyTime::duration>(std::chrono::duration<double>(kMostSeconds));
  // Adds `changed` where a batch of `least` or more fits.
  const auto add = [&](const RunConfig& changed, const RunConfig& named, const std::string& flags, int64_t least) {
    std::optional<Change> c = with_batch(changed, available, eval_rows, until);
    if (!c || c->config.train.batch < least) return false;
    c->flags = joined(flags, flags_between(named, c->config));
    found.push_back(std::move(*c));
    return true;
  };
  const bool alone = add(config, config, "", 1);
  const int64_t larger = alone ? found[0].config.train.batch + 1 : 1;  // than what a smaller batch alone is
  if (config.model.dtype == "f32") {
    RunConfig half = config;
    half.model.dtype = "bf16";
    add(half, config, "", larger);
  }
  RunConfig shorter = config;
  while (shorter.context() % 2 == 0 && shorter.context() / 2 >= kShortestContext && steady_now() < until) {
    shorter.train.context = shorter.context() / 2;
    shorter.train.accumulate *= 2;
    if (add(shorter, config, "", alone ? config.train.batch : 1)) break;
  }
  for (const Change& smaller : smaller_presets(config)) {
    if (found.size() >= kMostChanges || steady_now() >= until) break;
    add(smaller.config, smaller.config, smaller.flags, larger);
  }
  return found;
}

std::string fit_text(const RunConfig& config, const Plan& plan, int64_t available, int64_t eval_rows) {
  const Peak& peak = higher(plan);
  std::string text = fmt::format("the plan's peak ({}):\n{}", peak.moment, peak_text(peak));
  const std::vector<Change> changes = changes_that_fit(config, available, eval_rows);
  if (changes.empty())
    return text + "no smaller batch, context or preset was found that fits with as many tokens a step\n";
  text += fmt::format("a new run fits into {} with any of:\n", bytes_text(static_cast<double>(available)));
  for (const Change& c : changes)
    text += fmt::format("  {:<58}  {:>11}\n", c.flags, bytes_text(static_cast<double>(c.bytes)));
  return text;
}

void require_fit(const RunConfig& config, const Plan& plan, int64_t available, int64_t eval_rows) {
  const Peak& peak = higher(plan);
  if (available == 0 || peak.bytes() <= available) return;
  const Device device = config.device();
  Error error(fmt::format(
      "the plan needs {} at its peak ({}) and {} has {} for tensors: lower train.batch or "
      "train.context, or train a smaller model",
      bytes_text(static_cast<double>(peak.bytes())), peak.moment,
      device.kind == DeviceKind::kCpu ? "this machine" : name_of(device), bytes_text(static_cast<double>(available))));
  error.details = fit_text(config, plan, available - available / kShareOfOthers, eval_rows);
  throw error;
}

void explain(OutOfMemory& error, const RunConfig& config, const Plan& plan, int64_t eval_rows) {
  release_cached_blocks(error.device);
  try {
    error.details = fit_text(config, plan, error.live - error.live / kShareOfOthers, eval_rows);
  } catch (const std::exception&) {  // no memory for a plan either
  }
}

}  // namespace tally
