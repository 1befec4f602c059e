#include "tally/train/run_record.h"

#include <algorithm>
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

// A number that is not finite was written as null: a gap.
void add_point(Series& series, double step, const Json* value) {
  if (value == nullptr || !(value->is_number() || value->is_null())) return;
  series.x.push_back(step);
  series.y.push_back(value->is_null() ? std::numeric_limits<double>::quiet_NaN() : value->as_double());
}

void add_line(const Json& line, RunRecord& r) {
  const int64_t step = line.at("step").as_int();
  const std::pair<const char*, Series*> metrics[] = {
      {"loss", &r.loss},           {"lr", &r.lr},
      {"grad_norm", &r.grad_norm}, {"tokens_per_second", &r.tokens_per_second},
      {"val_loss", &r.val_loss},   {"bits_per_byte", &r.bits_per_byte}};
  for (const auto& [key, series] : metrics) add_point(*series, static_cast<double>(step), line.find(key));
  if (const Json* text = line.find("sample"); text && text->is_string()) r.samples.push_back({step, text->as_string()});
}

// The last line of a run that goes on or was killed may be torn: it is passed over in silence, other bad lines are
// counted.
void read_metrics(const fs::path& path, RunRecord& record) {
  std::error_code error;
  const std::string text = fs::exists(path, error) ? read_file(path) : "";
  int64_t good = 0, bad = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string_view line = std::string_view(text).substr(at, end == std::string::npos ? end : end - at);
    at = end == std::string::npos ? text.size() : end + 1;
    try {
      add_line(Json::parse(line, "metrics.jsonl"), record);
      ++good;
    } catch (const Error&) {
      if (end != std::string::npos) ++bad;
    }
  }
  if (good == 0) fail("{}: has no metrics yet (metrics.jsonl has no complete line)", record.name);
  if (bad > 0)
    record.notes.push_back(fmt::format("lines of metrics.jsonl left out, since they are not readable: {}", bad));
}

}  // namespace

int64_t RunRecord::last_step() const {
  double last = 0;
  for (const Series* s : {&loss, &val_loss})
    for (const double x : s->x) last = std::max(last, x);
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
