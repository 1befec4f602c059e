// tally inspect checkpoint PATH: what a file or folder holds, by its content: a run, a checkpoint, a data or tokenizer
// folder, .safetensors, .tok, .npy, .npz, token ids.
#include <algorithm>

#include "cli/inspect.h"
#include "tally/base/error.h"
#include "tally/core/dtype.h"
#include "tally/data/build.h"
#include "tally/data/tokens.h"
#include "tally/io/npy.h"
#include "tally/io/safetensors.h"
#include "tally/text/tokenizer.h"
#include "tally/train/report.h"
#include "tally/train/run_folder.h"

namespace tally::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// What was found: `summary` as "key  value" lines, then `rows` (the first is the heading) as a table.
struct Found {
  std::vector<std::pair<std::string, std::string>> summary;
  Rows rows;

  Json to_json() const {
    Json json = Json::object(), list = Json::array();
    for (const auto& [key, value] : summary) json.set(key, value);
    for (size_t r = 1; r < rows.size(); ++r) {
      Json row = Json::object();
      for (size_t c = 0; c < rows[r].size(); ++c) row.set(rows[0][c], rows[r][c]);
      list.push_back(row);
    }
    return rows.empty() ? json : json.set("rows", list);
  }
  std::string text() const {
    Rows head;
    for (const auto& [key, value] : summary) head.push_back({key, value});
    return columns_text(head, 99) + (rows.empty() ? "" : columns_text(rows, 99));
  }
};

// One line of a value that a file may have made arbitrarily long or wild.
std::string shown(const std::string& text) {
  const std::string quoted = Json(text.substr(0, 100)).dump();
  return quoted.substr(1, quoted.size() - 2) + (text.size() > 100 ? "..." : "");
}

Found safetensors(const fs::path& path) {
  const SafeTensors file(path);
  int64_t numbers = 0;
  Found found;
  found.rows = {{"tensor", "dtype", "shape", "bytes"}};
  for (const SafeTensor& t : file.tensors()) {
    numbers += t.shape.numel();
    found.rows.push_back({shown(t.name), t.dtype_name, str(t.shape), with_commas(static_cast<int64_t>(t.data.size()))});
  }
  found.summary = {{"file", path.string()},
                   {"kind", "safetensors"},
                   {"tensors", with_commas(static_cast<int64_t>(file.tensors().size()))},
                   {"numbers", with_commas(numbers)},
                   {"bytes", with_commas(static_cast<int64_t>(file.data_bytes()))}};
  for (const auto& [key, value] : file.metadata()) found.summary.emplace_back("metadata." + shown(key), shown(value));
  return found;
}

Found shard(const fs::path& path) {
  const Shard s(path);
  s.verify();
  return {{{"file", path.string()},
           {"kind", "token shard"},
           {"dtype", id_type_name(s.ids().type)},
           {"tokens", with_commas(s.tokens())},
           {"documents", with_commas(s.documents())},
           {"tokenizer", hex(s.tokenizer_hash())},
           {"checksums", "agree"}},
          {}};
}

Found arrays(const fs::path& path) {
  const NpyFile file(path);
  Found found{{{"file", path.string()}, {"kind", "numpy arrays"}}, {{"array", "dtype", "shape", "bytes"}}};
  for (const auto& [name, a] : file.arrays())
    found.rows.push_back(
        {name.empty() ? "-" : shown(name), a.descr, str(a.shape), with_commas(static_cast<int64_t>(a.data.size()))});
  return found;
}

Found ids(const std::string& path) {
  const TokenSource source = TokenSource::open(path, int64_t{1} << 31);
  std::vector<int32_t> chunk(1 << 20);
  int32_t least = INT32_MAX, most = -1;
  for (int64_t at = 0; at < source.size();) {
    const int64_t n = std::min<int64_t>(source.size() - at, 1 << 20);
    source.read(at, n, chunk.data());
    const auto [low, high] = std::minmax_element(chunk.begin(), chunk.begin() + n);
    least = std::min(least, *low), most = std::max(most, *high), at += n;
  }
  Found found{{{"file", path}, {"kind", "token ids without a header"}, {"tokens", with_commas(source.size())}}, {}};
  if (most >= 0) {
    found.summary.emplace_back("lowest id", with_commas(least));
    found.summary.emplace_back("highest id", with_commas(most));
  }
  return found;
}

std::vector<std::string> file_row(const fs::path& path) {
  return {path.filename().string(), with_commas(static_cast<int64_t>(fs::file_size(path)))};
}

void add_state(const CheckpointState& state, Found& found) {
  found.summary.emplace_back("step", with_commas(state.step));
  found.summary.emplace_back("optimizer steps", with_commas(state.optimizer_steps));
  found.summary.emplace_back("next micro-batch", with_commas(state.data_position));
  found.summary.emplace_back("tokenizer", state.tokenizer_hash);
  if (state.best.step >= 0)
    found.summary.emplace_back("best validation loss",
                               fmt::format("{:.4f} at step {}", state.best.loss, state.best.step));
}

Found checkpoint(const fs::path& folder) {
  Found found{{{"folder", folder.string()}, {"kind", "checkpoint, complete"}}, {{"file", "bytes"}}};
  add_state(read_checkpoint(folder), found);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"})
    found.rows.push_back(file_row(folder / name));
  return found;
}

std::string link_text(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return "none";
  std::string text = read_file(file);
  return shown(text.substr(0, text.find_last_not_of(" \n\r") + 1));
}

// With the state of the checkpoint that `latest` names; one that is torn is an error here as it is for a resume.
Found run(const fs::path& folder) {
  const RunConfig config = read_run_config(folder);
  Found found{{{"folder", folder.string()},
               {"kind", "run"},
               {"parameters", with_commas(parameter_count(config.model))},
               {"steps", with_commas(config.train.steps)},
               {"latest", link_text(folder / "latest")},
               {"best", link_text(folder / "best")}},
              {{"checkpoint", "state"}}};
  if (const fs::path latest = RunFolder(folder).latest(); !latest.empty()) add_state(read_checkpoint(latest), found);
  for (const int64_t step : checkpoint_steps(folder / "checkpoints")) {
    const std::string name = checkpoint_name(step);
    try {
      read_checkpoint(folder / "checkpoints" / name);
      found.rows.push_back({name, "complete"});
    } catch (const Error& e) {
      found.rows.push_back({name, e.what()});
    }
  }
  return found;
}

Found data_folder(const fs::path& folder) {
  const DataInfo info = read_data_info(folder);
  Found found{{{"folder", folder.string()},
               {"kind", "data"},
               {"tokenizer", fmt::format("{} of {} entries, hash {}", info.tokenizer_kind, with_commas(info.vocab_size),
                                         info.tokenizer_hash)}},
              {{"split", "tokens", "documents", "bytes", "shards"}}};
  for (const auto& [name, s] : {std::pair("train", info.train), std::pair("val", info.val)})
    found.rows.push_back(
        {name, with_commas(s.tokens), with_commas(s.documents), with_commas(s.bytes), with_commas(s.shards)});
  return found;
}

Found tokenizer_folder(const fs::path& folder) {
  const Tokenizer t = Tokenizer::load(folder);
  Found found{{{"folder", folder.string()},
               {"kind", fmt::format("{} tokenizer", tokenizer_kind_name(t.kind()))},
               {"entries", with_commas(t.vocab_size())},
               {"hash", t.hash()}},
              {{"special token", "id"}}};
  for (const auto& [name, id] : t.specials()) found.rows.push_back({shown(name), std::to_string(id)});
  return found;
}

Found look_at_folder(const fs::path& folder) {
  std::error_code error;
  const auto holds = [&](const char* name) { return fs::exists(folder / name, error); };
  if (holds("state.json") || holds("model.safetensors")) return checkpoint(folder);
  if (holds("config.json")) return run(folder);
  if (holds("data.json")) return data_folder(folder);
  if (holds("tokenizer_config.json") || holds("vocab.json")) return tokenizer_folder(folder);
  fail("{}: holds no run, checkpoint, data or tokenizer", folder.string());
}

Found look_at(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return look_at_folder(path);
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".safetensors") return safetensors(path);
  if (extension == ".tok") return shard(path);
  if (extension == ".npy" || extension == ".npz") return arrays(path);
  const size_t colon = path.rfind(':');
  const bool typed = colon != std::string::npos && id_type_from_name(path.substr(colon + 1));
  if (typed || extension == ".bin" || (extension.size() > 1 && id_type_from_name(extension.substr(1))))
    return ids(path);
  if (!fs::exists(path, error)) fail("{}: no such file or folder", path);
  fail("{}: what it holds is not known; known are .safetensors, .tok, .npy, .npz, .u16, .u32, .i32 and FILE:u16", path);
}

struct InspectCheckpoint {
  std::string path;
  bool json = false;

  static constexpr const char* kPositional = "path";
  static constexpr Alias kAliases[] = {{"model", "path"}};
  static constexpr const char* kDetails =
      "Says what PATH holds and whether it is complete: a run (its latest checkpoint), a checkpoint, a data or "
      "tokenizer\n"
      "folder, .safetensors, .tok, .npy, .npz, or token ids without a header (.u16, .u32, .i32, .bin, FILE:u16).";

  void fields(Fields& f) {
    f("path", path, "file or folder");
    f("json", json, "print JSON");
  }

  int run() {
    if (path.empty()) fail("no path; name a file or folder");
    const Found found = look_at(path);
    fmt::print("{}", json ? found.to_json().dump(2) + "\n" : found.text());
    return 0;
  }
};

}  // namespace

std::vector<Verb> inspect_checkpoint_verbs() {
  return {make_verb<InspectCheckpoint>("inspect checkpoint", "what a file or folder holds")};
}

}  // namespace tally::cli
