#include "tally/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tally/base/error.h"

namespace tally {

namespace {

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// What a process that was killed may have left: names that begin with a dot and hold ".tmp" or ".old".
void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> stale;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(".") && (name.find(".tmp") != std::string::npos || name.ends_with(".old")))
      stale.push_back(it->path());
  }
  for (const fs::path& path : stale) fs::remove_all(path, error);
}

// The name in `latest` or `best`; "" when the file is absent. Throws Error when it names no checkpoint.
std::string read_pointer(const fs::path& file) {
  if (!is_there(file)) return "";
  std::string name = read_file(file);
  while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
  if (!name.starts_with("step_") || name.find('/') != std::string::npos)
    fail("{}: does not name a checkpoint", file.string());
  return name;
}

}  // namespace

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

// A run that failed before its first step left nothing that could be lost.
bool RunFolder::holds_run() const {
  std::error_code none;
  const uintmax_t bytes = fs::file_size(metrics(), none);
  return is_there(checkpoints()) || (is_there(path_ / "config.json") && !none && bytes > 0);
}

void RunFolder::lock() {
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) fail("{}: the folder cannot be opened", path_.string());
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail("{}: another process is training in this folder", path_.string());
}

void RunFolder::begin(const RunConfig& config, const Tokenizer& tokenizer) {
  if (holds_run())
    fail("{}: holds a run already; go on with it by --resume, or name another folder with --out", path_.string());
  make_folder(path_);
  lock();
  remove_leftovers(path_);
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name != "tokenizer" && name != "metrics.jsonl" && name != "config.json")
      fail("{}: is not empty ({} is in it) and holds no run; name another folder with --out", path_.string(), name);
  }
  make_folder(path_ / "tokenizer");
  tokenizer.save(path_ / "tokenizer");
  write_config(config);
}

void RunFolder::reopen() {
  if (!is_there(path_ / "config.json")) fail("{}: holds no run to resume (no config.json)", path_.string());
  lock();
  remove_leftovers(path_);
  remove_leftovers(checkpoints());
  remove_leftovers(tensorboard());
}

void RunFolder::write_config(const RunConfig& config) const {
  write_file_atomic(path_ / "config.json", config.to_json().dump(2) + "\n");
}

void RunFolder::save(const CheckpointState& state, const std::vector<Param>& params, Optimizer& optimizer,
                     int64_t keep) const {
  save_checkpoint(checkpoints(), state, params, optimizer);
  point_at(state);
  std::vector<int64_t> steps = checkpoint_steps(checkpoints());
  // What `best` names stays too where the step of state.best itself could not be saved.
  const std::string best = is_there(path_ / "best") ? read_file(path_ / "best") : "";
  std::erase_if(steps,
                [&](int64_t s) { return s > state.step || s == state.best.step || checkpoint_name(s) + "\n" == best; });
  for (size_t i = 0; i + static_cast<size_t>(keep) < steps.size(); ++i)
    remove_checkpoint(checkpoints() / checkpoint_name(steps[i]));
}

void RunFolder::point_at(const CheckpointState& state) const {
  const auto point = [&](const char* file, int64_t step) {
    const std::string name = checkpoint_name(step);
    if (is_there(checkpoints() / name) && (!is_there(path_ / file) || read_file(path_ / file) != name + "\n"))
      write_file_atomic(path_ / file, name + "\n");
  };
  point("latest", state.step);
  if (state.best.step >= 0) point("best", state.best.step);
}

fs::path RunFolder::latest() const {
  const std::string name = read_pointer(path_ / "latest");
  return name.empty() ? fs::path() : checkpoints() / name;
}

std::string RunFolder::newest_name() const {
  try {
    const fs::path found = latest();
    return found.empty() ? "none" : found.string();
  } catch (const Error& e) {
    return e.what();
  }
}

RunConfig read_run_config(const fs::path& run) {
  const fs::path file = run / "config.json";
  return RunConfig::from_json(Json::parse(read_file(file), file.string()), file.string());
}

FoundModel find_run_model(const fs::path& folder) {
  FoundModel found;
  std::error_code error;
  if (!fs::is_directory(folder, error))
    fail("{}: no such folder; --model takes a run or a checkpoint", folder.string());
  if (is_there(folder / "model.safetensors") || is_there(folder / "state.json")) {
    found.checkpoint = folder;
    found.run = fs::absolute(folder).lexically_normal();
    if (!found.run.has_filename()) found.run = found.run.parent_path();
    found.run = found.run.parent_path().parent_path();
    if (!is_there(found.run / "config.json"))
      fail("{}: its run's config.json is not at {}", folder.string(), found.run.string());
  } else {
    if (!is_there(folder / "config.json"))
      fail("{}: is neither a run nor a checkpoint (no config.json)", folder.string());
    found.run = folder;
    found.checkpoint = RunFolder(folder).latest();
    if (found.checkpoint.empty()) fail("{}: the run has no checkpoint yet", folder.string());
    if (!is_there(found.checkpoint))
      fail("{}: the checkpoint that `latest` names is missing", found.checkpoint.string());
  }
  found.config = read_run_config(found.run);
  found.config.check();
  return found;
}

LoadedModel load_run_model(const fs::path& folder, const std::string& dtype, Device device) {
  const FoundModel found = find_run_model(folder);
  LoadedModel loaded;
  loaded.config = found.config;
  if (!dtype.empty()) loaded.config.model.dtype = dtype;
  loaded.checkpoint = found.checkpoint;
  const CheckpointState state = read_checkpoint(found.checkpoint);
  loaded.step = state.step;
  loaded.tokenizer = Tokenizer::load(found.run / "tokenizer");
  if (loaded.tokenizer.hash() != state.tokenizer_hash)
    fail("{}: was trained with the tokenizer {}; {} is the tokenizer {}", found.checkpoint.string(),
         state.tokenizer_hash, (found.run / "tokenizer").string(), loaded.tokenizer.hash());
  loaded.model = make_model(loaded.config.model, 0, device, /*values=*/false);
  load_model(found.checkpoint, state, loaded.model->params());
  loaded.model->pack_weights();
  return loaded;
}

}  // namespace tally
