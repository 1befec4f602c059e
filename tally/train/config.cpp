#include "tally/train/config.h"

#include <xxhash.h>

#include <algorithm>

#include "tally/base/error.h"

namespace tally {

void DataConfig::fields(Fields& f) {
  f("dir", dir, "data folder made by tally data build");
  f("order", order,
    "of the training windows: random places, shuffle (each once an epoch, in an order of the epoch's own), sequential",
    {"random", "shuffle", "sequential"});
}

void TrainConfig::fields(Fields& f) {
  f("steps", steps, "updates of the parameters", 0, 1e12);
  f("batch", batch, "sequences of a micro-batch", 1, 1 << 20);
  f("context", context, "tokens of a sequence; 0 is the model's context", 0, 1 << 24);
  f("accumulate", accumulate, "micro-batches of a step, whose gradients are averaged", 1, kMostAccumulate);
  f("device", device, "that computes: cpu, cuda or cuda:N");
  f("matmul", matmul, "what CUDA's products of f32 are computed in; tf32 is faster and keeps 10 bits", {"f32", "tf32"});
  f("seed", seed, "of initial values, batches and dropout", 0, 9e15);
  f("log_every", log_every, "steps between lines of metrics.jsonl", 1, 1e12);
  f("eval_every", eval_every, "steps between validation losses; 0 is never", 0, 1e12);
  f("eval_batches", eval_batches, "batches of a validation loss, spread evenly; 0 is the whole validation set", 0,
    1e12);
  f("checkpoint_every", checkpoint_every, "steps between checkpoints; 0 is only at the end and at a new best", 0, 1e12);
  f("checkpoint_minutes", checkpoint_minutes, "minutes between checkpoints, besides checkpoint_every; 0 is none", 0,
    1e6);
  f("keep_last", keep_last, "checkpoints that are kept besides the best", 1, 1e6);
  f("save_wait", save_wait, "seconds in which the last save is tried again if the disk is full", 0, 1e6);
  f("time_limit", time_limit, "stop and save before this much time has passed: 90s, 5m, 2h30m; empty is no limit");
  f("tensorboard", tensorboard, "write the metrics as TensorBoard event files too, to RUN/tensorboard");
  f("sample_every", sample_every, "steps between samples; 0 is only at the end", 0, 1e12);
  f("sample_tokens", sample_tokens, "length of a sample; 0 is none", 0, 1e6);
  f("sample_prompt", sample_prompt, "what a sample goes on from");
  f("sample_temperature", sample_temperature, "of the samples", 0, 1e6);
}

void RunConfig::fields(Fields& f) {
  f.group("model", model);
  f.group("data", data);
  f.group("optim", optim);
  f.group("schedule", schedule);
  f.group("train", train);
}

double duration_seconds(const std::string& text) {
  double seconds = 0;
  size_t at = 0;
  for (const auto& [unit, size] : {std::pair('d', 86400.0), {'h', 3600.0}, {'m', 60.0}, {'s', 1.0}}) {
    const size_t end = text.find_first_not_of("0123456789.", at);
    if (end == std::string::npos || end == at || text[end] != unit) continue;
    size_t used = 0;
    try {
      seconds += size * std::stod(text.substr(at, end - at), &used);
    } catch (const std::exception&) {
    }
    if (used != end - at) break;
    at = end + 1;
  }
  if (at != text.size() || !(seconds > 0 && seconds <= 86400 * 10000.0))
    fail("train.time_limit is '{}'; it is written as 90s, 5m, 2h30m or 1d12h, more than nothing, at most 10000d",
         printable(text));
  return seconds;
}

Device RunConfig::device() const {
  const Device d = device_from_name(train.device);
  if (d.kind == DeviceKind::kMeta) fail("train.device {}: a run needs cpu, cuda or cuda:N", train.device);
  return d;
}

Device RunConfig::meta_device() const { return {DeviceKind::kMeta, device().kind, 0}; }

void RunConfig::check() const {
  model.check();
  if (device().kind == DeviceKind::kCuda && model.dtype == "f64")
    fail("model.dtype f64: train.device {} computes in f32 and bf16; f64 is the CPU's", train.device);
  if (device().kind != DeviceKind::kCuda && train.matmul != "f32")
    fail("train.matmul {}: needs train.device cuda; the CPU's products of f32 are f32", train.matmul);
  time_limit_seconds();
  if (context() > model.context) fail("train.context {} is longer than model.context {}", train.context, model.context);
  if (train.steps > 0 && schedule.warmup > train.steps)
    fail("schedule.warmup {} is longer than the run: train.steps {}", schedule.warmup, train.steps);
  if (optim.beta1 >= 1) fail("optim.beta1 must be below 1");
  if (optim.beta2 >= 1) fail("optim.beta2 must be below 1");
  const double tokens = static_cast<double>(train.batch) * static_cast<double>(context());
  const double widest = static_cast<double>(std::max({model.vocab_size, model.d_ff, model.d_model}));
  if (tokens * widest > 1e15 || tokens * static_cast<double>(train.accumulate) > 1e15)
    fail("train.batch {} of context {} with train.accumulate {} and model.vocab_size {} is too large", train.batch,
         context(), train.accumulate, model.vocab_size);
}

Json RunConfig::to_json() const {
  RunConfig copy = *this;
  Json json = fields_to_json(fields_of(copy));
  json.set("tally_version", kTallyVersion);
  return json;
}

RunConfig RunConfig::from_json(const Json& json, const std::string& where) {
  if (!json.is_object()) fail("{}: the configuration must be an object", where);
  Json::Object kept;
  for (const auto& entry : json.as_object())
    if (entry.first != "tally_version") kept.push_back(entry);
  RunConfig config;
  fields_from_json(fields_of(config), Json(std::move(kept)), where);
  return config;
}

Json identity_of(const RunConfig& config) {
  RunConfig copy = config;
  copy.train.context = config.context();
  Json identity = Json::object();
  const Fields fields = fields_of(copy);
  for (const Field& field : fields.all()) {
    const bool train = field.key.starts_with("train.");
    const bool counts = field.key == "train.batch" || field.key == "train.context" || field.key == "train.accumulate" ||
                        field.key == "train.seed";
    if (field.key == "data.dir" || (train && !counts)) continue;
    identity.set(field.key, field.get());
  }
  return identity;
}

std::string first_difference(const Json& stored, const Json& here) {
  for (const auto& [key, value] : here.as_object()) {
    const Json* other = stored.find(key);
    if (other == nullptr) return fmt::format("{} is missing in the checkpoint and {} here", key, value.dump());
    if (!(*other == value))
      return fmt::format("{} is {} in the checkpoint and {} here", key, other->dump(), value.dump());
  }
  for (const auto& [key, value] : stored.as_object())
    if (here.find(key) == nullptr)
      return fmt::format("{} is {} in the checkpoint and not known here", key, value.dump());
  return "";
}

std::string hash_of(const Json& json) {
  const std::string text = json.dump();
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace tally
