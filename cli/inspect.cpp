// tally inspect model | cost | memory: what a configuration holds and takes, found by running its own code on meta.
// Blocks are alike, so rows of "blocks.*" stand for all of them.
#include "cli/inspect.h"

#include <algorithm>
#include <cctype>

#include "cli/verbs.h"
#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/dtype.h"
#include "tally/models/model.h"
#include "tally/ops/matmul.h"
#include "tally/ops/measure_peaks.h"
#include "tally/train/plan.h"
#include "tally/train/report.h"
#include "tally/train/run_folder.h"

namespace tally::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// "blocks.3.attn" and "blocks.3/attn" -> "blocks.*..."
std::string without_number(const std::string& name) {
  const std::string start = "blocks.";
  if (!name.starts_with(start)) return name;
  size_t end = start.size();
  while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
  return end == start.size() ? name : start + "*" + name.substr(end);
}

std::string percent(double part, double whole) { return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0.0); }

// The entry of `list` whose key is `key`, appended when absent: keeps the order of first use.
template <class T>
T& entry_of(std::vector<std::pair<std::string, T>>& list, const std::string& key) {
  for (auto& [name, value] : list)
    if (name == key) return value;
  return list.emplace_back(key, T{}).second;
}

struct InspectModel : InspectConfig {
  static constexpr const char* kDetails =
      "Parameters by name, shape and count; equal tensors of all blocks in one row.";

  int run() {
    run_config.model.check();
    const std::unique_ptr<Model> model = make_model(run_config.model, 1, kMetaCpu);
    const std::vector<Param> params = model->params();
    if (json)
      print_json(params);
    else
      print_text(params);
    return 0;
  }

 private:
  void print_json(const std::vector<Param>& params) {
    Json tensors = Json::array();
    for (const Param& p : params) {
      Json shape = Json::array();
      for (int i = 0; i < p.tensor->dim(); ++i) shape.push_back(p.tensor->size(i));
      tensors.push_back(Json::object()
                            .set("name", p.name)
                            .set("shape", shape)
                            .set("dtype", name_of(p.tensor->dtype()))
                            .set("parameters", p.tensor->numel()));
    }
    Json all = Json::object();
    all.set("parameters", parameter_count(params)).set("model", fields_to_json(fields_of(run_config.model)));
    fmt::print("{}\n", all.set("tensors", tensors).dump(2));
  }

  void print_text(const std::vector<Param>& params) {
    struct Group {
      std::string shape, dtype;
      int64_t each = 0, tensors = 0;
    };
    std::vector<std::pair<std::string, Group>> groups;
    const auto total = static_cast<double>(parameter_count(params));
    int64_t block = 0, bytes = 0;
    for (const Param& p : params) {
      const Tensor& t = *p.tensor;
      Group& g = entry_of(groups, without_number(p.name));
      g = {str(t.sizes()), name_of(t.dtype()), t.numel(), g.tensors + 1};
      bytes += t.numel() * item_size(t.dtype());
      if (p.name.starts_with("blocks.0.")) block += t.numel();
    }
    Rows rows = {{"tensor", "shape", "dtype", "each", "tensors", "parameters", "share"}};
    for (const auto& [name, g] : groups) {
      const int64_t sum = g.each * g.tensors;
      rows.push_back({name, g.shape, g.dtype, with_commas(g.each), fmt::format("x {}", g.tensors), with_commas(sum),
                      percent(static_cast<double>(sum), total)});
    }
    fmt::print("{}", columns_text(rows, 3));
    fmt::print("{} parameters ({}), {} blocks of {}\n", with_commas(parameter_count(params)),
               bytes_text(static_cast<double>(bytes)), run_config.model.n_layers, with_commas(block));
  }
};

// Multiply-adds of causal attention counted for all pairs of T x T instead of the T (T + 1) / 2 that are not masked.
int64_t full_attention_flops(const Ledger::Entry& e, int64_t t) {
  if (std::string_view(e.op) != "attention" && std::string_view(e.op) != "attention_backward")
    return e.cost.matmul_flops;
  return e.cost.matmul_flops / (t * (t + 1) / 2) * (t * t);
}

struct InspectCost : InspectConfig {
  std::string by = "scope";
  bool full_attention = false, time = false;

  static constexpr const char* kDetails =
      "FLOPs and bytes of one training step, from the code that runs it. Attention counts the pairs that a causal "
      "mask\n"
      "leaves, T (T + 1) / 2; --full-attention counts T x T, as published formulas do.";

  void fields(Fields& f) {
    InspectConfig::fields(f);
    f("by", by, "what a row is", {"scope", "op", "phase"});
    f("full_attention", full_attention, "count T x T pairs in attention");
    f("time", time, "predict times from this machine's measured peaks");
  }
  void prepare(const InspectCost& asked, const std::vector<std::string>& given) {
    InspectConfig::prepare(asked, given);
  }

  int run() {
    run_config.check();
    const Plan plan = plan_run(run_config, time ? &measured_hardware() : nullptr);
    std::vector<std::pair<std::string, Sum>> rows, phases;
    Sum all;
    for (const Ledger::Entry& e : plan.ledger->entries()) {
      const std::string scope = e.scope.empty() ? "(step)" : without_number(e.scope);
      const std::string key = by == "phase" ? e.phase : e.phase + " " + (by == "op" ? std::string(e.op) : scope);
      for (Sum* sum : {&entry_of(rows, key), &entry_of(phases, e.phase), &all}) sum->add(e, run_config.context());
    }
    if (json)
      print_json(plan, rows, phases, all);
    else
      print_text(plan, rows, phases, all);
    return 0;
  }

 private:
  struct Sum {
    Cost cost;
    int64_t full_matmul = 0, launches = 0;
    double seconds = 0;
    void add(const Ledger::Entry& e, int64_t t) {
      cost += e.cost, full_matmul += full_attention_flops(e, t), launches += e.launches, seconds += e.predicted_seconds;
    }
    int64_t bytes() const { return cost.bytes_read + cost.bytes_written; }
  };
  using Sums = std::vector<std::pair<std::string, Sum>>;

  std::vector<std::string> row(const std::string& name, const Sum& s, const Sum& all) const {
    const int64_t matmul = full_attention ? s.full_matmul : s.cost.matmul_flops;
    const int64_t whole = full_attention ? all.full_matmul : all.cost.matmul_flops;
    std::vector<std::string> cells = {name,
                                      with_commas(matmul),
                                      percent(static_cast<double>(matmul), static_cast<double>(whole)),
                                      with_commas(s.cost.other_flops),
                                      with_commas(s.bytes()),
                                      with_commas(s.launches)};
    if (time) cells.push_back(seconds_text(s.seconds));
    return cells;
  }

  void print_text(const Plan& plan, const Sums& rows, const Sums& phases, const Sum& all) const {
    Rows table = {
        {by == "phase" ? "phase" : "phase " + by, "matmul FLOPs", "share", "other FLOPs", "bytes", "launches"}};
    if (time) table[0].push_back("time");
    for (const auto& [name, s] : rows) table.push_back(row(name, s, all));
    if (by != "phase")
      for (const auto& [name, s] : phases) table.push_back(row(name, s, all));
    table.push_back(row("step", all, all));
    fmt::print("{}", columns_text(table, 1));
    const auto tokens = static_cast<double>(run_config.tokens_per_step());
    fmt::print("a step has {} tokens; attention counts {}\n", with_commas(run_config.tokens_per_step()),
               full_attention ? "all T x T pairs" : "the pairs that are not masked");
    for (const auto& [name, s] : phases)
      if (s.cost.matmul_flops > 0)
        fmt::print("matmul FLOPs, {}: {} (unmasked pairs), {} (T x T pairs)\n", name, with_commas(s.cost.matmul_flops),
                   with_commas(s.full_matmul));
    fmt::print("matmul FLOPs a token: {:.4g}; 6 x parameters: {:.4g}\n",
               static_cast<double>(full_attention ? all.full_matmul : all.cost.matmul_flops) / tokens,
               6 * static_cast<double>(plan.parameters));
  }

  static Json sum_json(const Sum& s) {
    Json json = Json::object();
    json.set("matmul_flops", s.cost.matmul_flops).set("matmul_flops_full_attention", s.full_matmul);
    json.set("other_flops", s.cost.other_flops).set("bytes_read", s.cost.bytes_read);
    return json.set("bytes_written", s.cost.bytes_written).set("launches", s.launches);
  }

  void print_json(const Plan& plan, const Sums& rows, const Sums& phases, const Sum& all) const {
    Json table = Json::object(), by_phase = Json::object(), whole = Json::object();
    for (const auto& [name, s] : rows) table.set(name, sum_json(s));
    for (const auto& [name, s] : phases) by_phase.set(name, sum_json(s));
    whole.set("parameters", plan.parameters).set("tokens", run_config.tokens_per_step()).set("step", sum_json(all));
    if (time) whole.set("step_seconds", plan.step_seconds);
    fmt::print("{}\n", whole.set("phases", by_phase).set("rows", table).dump(2));
  }
};

struct InspectMemory : InspectConfig {
  static constexpr const char* kDetails =
      "Memory at the peak of a training step and of a validation batch, by category, from the code that runs them.";

  int run() {
    run_config.check();
    const Plan plan = plan_run(run_config, nullptr);
    const ModelConfig& m = run_config.model;
    const int64_t cache = 2 * m.n_layers * m.n_kv_heads * m.head_dim() * item_size(dtype_from_name(m.dtype));
    if (json) {
      Json all = Json::object();
      all.set("parameters", plan.parameters).set("step", peak_json(plan.step)).set("eval", peak_json(plan.eval));
      fmt::print("{}\n", all.set("cache_bytes_a_token", cache).dump(2));
      return 0;
    }
    print_peak("a training step", plan.step);
    print_peak("a validation batch", plan.eval);
    fmt::print("generation keeps {} bytes of keys and values a token\n", with_commas(cache));
    return 0;
  }

 private:
  static Json peak_json(const Peak& peak) {
    Json by = Json::object();
    for (size_t c = 0; c < kCategories; ++c) by.set(name_of(static_cast<Category>(c)), peak.by[c]);
    return Json::object().set("bytes", peak.bytes()).set("moment", peak.moment).set("by_category", by);
  }

  static void print_peak(const char* what, const Peak& peak) {
    fmt::print("{}: the peak is in {}\n", what, peak.moment);
    const auto whole = static_cast<double>(peak.bytes());
    Rows rows;
    const auto add = [&](const char* name, int64_t bytes) {
      const auto b = static_cast<double>(bytes);
      rows.push_back({std::string("  ") + name, with_commas(bytes), bytes_text(b), percent(b, whole)});
    };
    for (size_t c = 0; c < kCategories; ++c)
      if (peak.by[c] != 0) add(name_of(static_cast<Category>(c)), peak.by[c]);
    add("total", peak.bytes());
    fmt::print("{}", columns_text(rows, 1));
  }
};

}  // namespace

void InspectConfig::fields(Fields& f) {
  f("preset", preset_name, "a named model", preset_names());
  f("model_dir", model_dir, "a run or checkpoint folder, in place of a preset (--model is the same)");
  f("json", json, "print JSON");
  run_config.fields(f);
}

Device InspectConfig::usable_device() const {
  const Device d = run_config.device();
  require_device(d);
  set_matmul_precision(matmul_precision_from_name(run_config.train.matmul));
  return d;
}

void InspectConfig::prepare(const InspectConfig& asked, const std::vector<std::string>& given) {
  if (!asked.preset_name.empty() && !asked.model_dir.empty()) fail("give --preset or --model, not both");
  if (!asked.preset_name.empty()) run_config.model = preset(asked.preset_name);
  if (!asked.model_dir.empty()) {
    std::error_code error;
    const bool run = fs::exists(fs::path(asked.model_dir) / "config.json", error);
    run_config = run ? read_run_config(asked.model_dir) : find_run_model(asked.model_dir).config;
  }
  const bool keys =
      std::any_of(given.begin(), given.end(), [](const std::string& k) { return k.starts_with("model."); });
  if (asked.preset_name.empty() && asked.model_dir.empty() && !keys)
    fail("no model; give --preset NAME, --model DIR or --model.KEY values");
}

std::string columns_text(const std::vector<std::vector<std::string>>& rows, size_t numbers_from) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += (i == 0 ? "" : "  ") +
              (i < numbers_from ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::vector<Verb> inspect_verbs() {
  std::vector<Verb> verbs = {make_verb<InspectModel>("inspect model", "parameters by name"),
                             make_verb<InspectCost>("inspect cost", "FLOPs and bytes of a training step by scope"),
                             make_verb<InspectMemory>("inspect memory", "memory of a training step by category")};
  for (auto more : {inspect_checkpoint_verbs, inspect_machine_verbs})
    for (const Verb& verb : more()) verbs.push_back(verb);
  return verbs;
}

}  // namespace tally::cli
