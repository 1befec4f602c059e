#include "tally/train/checkpoint.h"

#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "tally/base/error.h"
#include "tally/core/dtype.h"
#include "tally/nn/state.h"

namespace tally {

namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";

int64_t size_of(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  return error ? -1 : static_cast<int64_t>(size);
}

// "" when the file has its size, else what is wrong with it.
std::string size_problem(const fs::path& file, int64_t wanted) {
  const int64_t size = size_of(file);
  if (size == wanted) return "";
  if (size < 0) return fmt::format("{}: is missing ({} bytes)", file.string(), wanted);
  if (size < wanted)
    return fmt::format("{}: {} bytes are missing, it holds {} of {}", file.string(), wanted - size, size, wanted);
  return fmt::format("{}: holds {} bytes, {} more than were written", file.string(), size, size - wanted);
}

CheckpointState parse_state(const Json& json) {
  CheckpointState s;
  s.step = json.at("step").as_int();
  s.optimizer_steps = json.at("optimizer_steps").as_int();
  s.data_position = json.at("data_position").as_int();
  s.seed = json.at("seed").as_int();
  s.train_tokens = json.at("train_tokens").as_int();
  s.tokenizer_hash = json.at("tokenizer_hash").as_string();
  if (const Json& best = json.at("best"); !best.is_null())
    s.best = {best.at("step").as_int(), best.at("val_loss").as_double()};
  s.identity = json.at("config");
  s.model_sum = json.at("sums").at(kModelFile).as_string();
  s.optimizer_sum = json.at("sums").at(kOptimizerFile).as_string();
  if (s.step < 0 || s.optimizer_steps < 0) fail("a number of steps is negative");
  if (json.at("config_hash").as_string() != hash_of(s.identity)) fail("config and config_hash do not agree");
  if (s.identity.find("data.order") == nullptr) s.identity.set("data.order", "random");  // the only one there was
  return s;
}

// The state, or what is wrong with the folder.
std::string check_checkpoint(const fs::path& folder, CheckpointState& state) {
  const fs::path file = folder / kStateFile;
  if (std::string problem = size_problem(file, kStateBytes); !problem.empty()) return problem;
  try {
    const Json json = Json::parse(read_file(file), file.string());
    state = parse_state(json);
    for (const char* name : {kModelFile, kOptimizerFile})
      if (std::string problem = size_problem(folder / name, json.at("files").at(name).as_int()); !problem.empty())
        return problem;
  } catch (const Error& e) {
    const std::string what = e.what();
    return what.starts_with(file.string()) ? what : file.string() + ": " + what;
  }
  return "";
}

// A file of the right size may still hold changed bytes.
void check_sum(const fs::path& file, const std::string& wanted) {
  if (const std::string sum = hash_of_file(file); sum != wanted)
    fail("{}: its bytes have changed since it was written (sum {}, written {})", file.string(), sum, wanted);
}

// Removed with all it holds unless it took its place.
class Scratch {
 public:
  explicit Scratch(fs::path path) : path_(std::move(path)) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    make_folder(path_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

Json CheckpointState::to_json(int64_t model_bytes, int64_t optimizer_bytes) const {
  Json best_json;
  if (best.step >= 0) best_json = Json::object().set("step", best.step).set("val_loss", best.loss);
  Json files = Json::object();
  files.set(kModelFile, model_bytes).set(kOptimizerFile, optimizer_bytes);
  return Json::object()
      .set("step", step)
      .set("optimizer_steps", optimizer_steps)
      .set("data_position", data_position)
      .set("seed", seed)
      .set("train_tokens", train_tokens)
      .set("tokenizer_hash", tokenizer_hash)
      .set("best", best_json)
      .set("files", files)
      .set("sums", Json::object().set(kModelFile, model_sum).set(kOptimizerFile, optimizer_sum))
      .set("config_hash", hash_of(identity))
      .set("config", identity)
      .set("tally_version", kTallyVersion);
}

// Read, not mapped: an I/O error under a map would be a signal that ends a run.
std::string hash_of_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) fail_run("{}: cannot be read", file.string());
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> sum(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(sum.get());
  std::vector<char> buffer(size_t{1} << 20);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0)
    XXH3_64bits_update(sum.get(), buffer.data(), static_cast<size_t>(in.gcount()));
  if (in.bad()) fail_run("{}: cannot be read to its end", file.string());
  return fmt::format("{:016x}", XXH3_64bits_digest(sum.get()));
}

void load_model(const fs::path& folder, const CheckpointState& state, const std::vector<Param>& params) {
  check_sum(folder / kModelFile, state.model_sum);
  load_tensors(folder / kModelFile, params);
}

void remove_checkpoint(const fs::path& folder) {
  std::error_code error;
  const fs::path aside = folder.parent_path() / ("." + folder.filename().string() + ".old");
  fs::remove_all(aside, error);
  fs::rename(folder, aside, error);
  if (!error) fs::remove_all(aside, error);
}

int64_t checkpoint_bytes(const std::vector<Param>& params, Optimizer& optimizer) {
  int64_t bytes = kStateBytes;
  for (const auto& list : {params, optimizer.state()})
    for (const Param& p : list) bytes += p.tensor->numel() * item_size(p.tensor->dtype());
  return bytes + bytes / 20 + (256 << 10);
}

std::string checkpoint_name(int64_t step) { return fmt::format("step_{:08d}", step); }

fs::path save_checkpoint(const fs::path& checkpoints, const CheckpointState& given, const std::vector<Param>& params,
                         Optimizer& optimizer) {
  CheckpointState state = given;
  make_folder(checkpoints);
  const std::string name = checkpoint_name(state.step);
  const fs::path place = checkpoints / name;
  const Scratch scratch(checkpoints / ("." + name + ".tmp"));
  const fs::path& folder = scratch.path();
  save_tensors(folder / kModelFile, params, {{"format", "pt"}, {"step", std::to_string(state.step)}});
  save_tensors(folder / kOptimizerFile, optimizer.state(), {{"steps", std::to_string(state.optimizer_steps)}});
  state.model_sum = hash_of_file(folder / kModelFile), state.optimizer_sum = hash_of_file(folder / kOptimizerFile);
  std::string text = state.to_json(size_of(folder / kModelFile), size_of(folder / kOptimizerFile)).dump(1);
  if (text.size() + 1 > kStateBytes) fail("state.json of {} bytes is longer than {}", text.size(), kStateBytes - 1);
  text.resize(kStateBytes - 1, ' ');
  write_file_atomic(folder / kStateFile, text + "\n");
  sync_folder(folder);
  std::error_code error;
  if (fs::exists(place, error)) remove_checkpoint(place);
  fs::rename(folder, place, error);
  if (error) fail_run("{}: the checkpoint cannot be put in place ({})", place.string(), error.message());
  sync_folder(checkpoints);
  return place;
}

CheckpointState read_checkpoint(const fs::path& folder) {
  CheckpointState state;
  const std::string problem = check_checkpoint(folder, state);
  if (problem.empty()) return state;
  std::error_code error;
  const fs::path whole = fs::absolute(folder, error).lexically_normal();
  const std::string name = whole.filename().string();
  const int64_t step = name.starts_with("step_") ? std::atoll(name.c_str() + 5) : 0;
  const auto earlier = newest_complete(folder.parent_path(), step - 1);
  fail("{}; {}", problem,
       earlier ? fmt::format("the newest complete checkpoint before it is {}", earlier->string())
               : std::string("there is no complete checkpoint before it"));
}

CheckpointState load_checkpoint(const fs::path& folder, const RunConfig& config, const std::string& tokenizer_hash,
                                int64_t train_tokens, TrainState& state) {
  const CheckpointState stored = read_checkpoint(folder);
  if (stored.tokenizer_hash != tokenizer_hash)
    fail("{}: was trained with the tokenizer {}; the data here is of the tokenizer {}", folder.string(),
         stored.tokenizer_hash, tokenizer_hash);
  if (const std::string difference = first_difference(stored.identity, identity_of(config)); !difference.empty())
    fail("{}: {}; leave the key out to go on with the run's value", folder.string(), difference);
  if (stored.train_tokens != train_tokens)
    fail("{}: was trained on data of {} tokens; the data here holds {}", folder.string(), stored.train_tokens,
         train_tokens);
  check_sum(folder / kOptimizerFile, stored.optimizer_sum);
  load_model(folder, stored, state.params);
  load_tensors(folder / kOptimizerFile, state.optimizer->state());
  state.optimizer->set_steps(stored.optimizer_steps);
  state.step = stored.step;
  return stored;
}

std::vector<int64_t> checkpoint_steps(const fs::path& checkpoints) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator it(checkpoints, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with("step_") || name.size() > 20) continue;
    const int64_t step = std::atoll(name.c_str() + 5);
    if (name == checkpoint_name(step)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<fs::path> newest_complete(const fs::path& checkpoints, int64_t step) {
  std::vector<int64_t> steps = checkpoint_steps(checkpoints);
  for (auto it = steps.rbegin(); it != steps.rend(); ++it) {
    CheckpointState state;
    const fs::path folder = checkpoints / checkpoint_name(*it);
    if (*it <= step && check_checkpoint(folder, state).empty()) return folder;
  }
  return std::nullopt;
}

}  // namespace tally
