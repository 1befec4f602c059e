#include "tally/train/run_record.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "tally/base/error.h"

namespace tally {

namespace {

// A file that may be absent; one that is there and cannot be read is a note.
Json optional_json(const fs::path& path, RunRecord& record) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  try {
    Json json = Json::parse(read_file(path), path.filename().string());
    if (json.is_object()) return json;
    record.notes.push_back(path.filename().string() + " is left out: it is not an object");
  } catch (const Error& e) {
    record.notes.push_back(path.filename().string() + " is left out: " + e.what());
  }
  return {};
}

void read_config(const fs::path& path, RunRecord& record) {
  record.config = Json::parse(read_file(path), path.string());
  if (!record.config.is_object()) fail("{}: is not an object", path.string());
  try {
    record.parsed = RunConfig::from_json(record.config, "config.json");
    record.parsed->check();
  } catch (const Error& e) {
    record.parsed.reset();
    record.notes.push_back(std::string("config.json is only listed: ") + e.what());
  }
}

// Collects what lines of metrics.jsonl say in bounded memory: a run reports on itself while it goes on, and must not
// grow with its length.
struct Metrics {
  CurveBuilder loss, lr, grad_norm, tokens_per_second, val_loss, bits_per_byte;
  std::vector<RunRecord::Sample> samples;
  int64_t seen_samples = 0, every = 1;

  void add_line(const Json& line) {
    const int64_t step = line.at("step").as_int();
    const std::pair<const char*, CurveBuilder*> curves[] = {
        {"loss", &loss},           {"lr", &lr},
        {"grad_norm", &grad_norm}, {"tokens_per_second", &tokens_per_second},
        {"val_loss", &val_loss},   {"bits_per_byte", &bits_per_byte}};
    for (const auto& [key, curve] : curves) {
      const Json* value = line.find(key);
      if (value == nullptr || !(value->is_number() || value->is_null())) continue;
      // A number that is not finite was written as null: a gap.
      curve->add(static_cast<double>(step),
                 value->is_null() ? std::numeric_limits<double>::quiet_NaN() : value->as_double());
    }
    if (const Json* text = line.find("sample"); text && text->is_string()) add_sample({step, text->as_string()});
  }

  // Every `every`th stays, and behind them the newest until the next one comes.
  void add_sample(RunRecord::Sample sample) {
    if (seen_samples > 0 && (seen_samples - 1) % every != 0) samples.pop_back();
    if (samples.size() == RunRecord::kMostSamples) {
      for (size_t i = 1; i < RunRecord::kMostSamples / 2; ++i) samples[i] = std::move(samples[2 * i]);
      samples.resize(RunRecord::kMostSamples / 2);
      every *= 2;
    }
    samples.push_back(std::move(sample));
    ++seen_samples;
  }

  void store(RunRecord& r) {
    r.loss = loss.curve(), r.lr = lr.curve(), r.grad_norm = grad_norm.curve();
    r.tokens_per_second = tokens_per_second.curve(), r.val_loss = val_loss.curve();
    r.bits_per_byte = bits_per_byte.curve(), r.samples = std::move(samples);
  }
};

// The last line of a run that goes on or was killed may be torn: it is passed over in silence, other bad lines are
// counted.
void read_metrics(const fs::path& path, RunRecord& record) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  std::ifstream file(path, std::ios::binary);
  if (there && (!file || fs::is_directory(path, error))) fail("{}: cannot be read", path.string());
  Metrics metrics;
  int64_t good = 0, bad = 0;
  for (std::string line; std::getline(file, line);) {
    try {
      metrics.add_line(Json::parse(line, "metrics.jsonl"));
      ++good;
    } catch (const Error&) {
      if (!file.eof()) ++bad;
    }
  }
  metrics.store(record);
  if (good == 0) fail("{}: has no metrics yet (metrics.jsonl has no complete line)", record.name);
  if (bad > 0)
    record.notes.push_back(fmt::format("lines of metrics.jsonl left out, since they are not readable: {}", bad));
}

}  // namespace

int64_t RunRecord::last_step() const {
  double last = 0;
  for (const Curve* c : {&loss, &val_loss})
    for (const double x : c->points.x) last = std::max(last, x);
  for (const Sample& s : samples) last = std::max(last, static_cast<double>(s.step));
  return static_cast<int64_t>(std::min(last, 9e18));
}

int64_t RunRecord::tokens_per_step() const { return parsed ? parsed->tokens_per_step() : 0; }

RunRecord read_run_record(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) fail("{}: no such folder", folder.string());
  if (!fs::exists(folder / "config.json", error)) fail("{}: is not a run directory (no config.json)", folder.string());
  RunRecord record;
  record.name = folder.string();
  while (record.name.size() > 1 && record.name.back() == '/') record.name.pop_back();
  read_config(folder / "config.json", record);
  read_metrics(folder / "metrics.jsonl", record);
  record.ledger = optional_json(folder / "ledger.json", record);
  record.profile = optional_json(folder / "profile.json", record);
  return record;
}

}  // namespace tally
