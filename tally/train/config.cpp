#include "tally/train/config.h"

#include <xxhash.h>

#include <algorithm>

#include "tally/base/error.h"

namespace tally {

void DataConfig::fields(Fields& f) { f("dir", dir, "data folder made by tally data build"); }

void TrainConfig::fields(Fields& f) {
  f("steps", steps, "updates of the parameters", 0, 1e12);
  f("batch", batch, "sequences of a micro-batch", 1, 1 << 20);
  f("context", context, "tokens of a sequence; 0 is the model's context", 0, 1 << 24);
  f("accumulate", accumulate, "micro-batches of a step, whose gradients are averaged", 1, 1 << 20);
  f("seed", seed, "of initial values, batches and dropout", 0, 9e15);
  f("log_every", log_every, "steps between lines of metrics.jsonl", 1, 1e12);
  f("eval_every", eval_every, "steps between validation losses; 0 is never", 0, 1e12);
  f("eval_batches", eval_batches, "batches of a validation loss, spread evenly; 0 is the whole validation set", 0,
    1e12);
  f("checkpoint_every", checkpoint_every, "steps between checkpoints; 0 is only at the end and at a new best", 0, 1e12);
  f("keep_last", keep_last, "checkpoints that are kept besides the best", 1, 1e6);
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

void RunConfig::check() const {
  model.check();
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
  Json kept = Json::object();
  for (const auto& [key, value] : json.as_object())
    if (key != "tally_version") kept.set(key, value);
  RunConfig config;
  fields_from_json(fields_of(config), kept, where);
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
    if (field.key.starts_with("data.") || (train && !counts)) continue;
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
