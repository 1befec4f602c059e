// Two passes over mapped text: the first finds the split, the second encodes. Documents are encoded by all threads in
// groups of up to kGroupBytes and written in order, so the result does not depend on the thread count.
#include "tally/data/build.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "tally/base/error.h"
#include "tally/base/json.h"
#include "tally/base/parallel.h"
#include "tally/data/documents.h"
#include "tally/io/shard.h"

namespace tally {
namespace {

constexpr size_t kGroupBytes = size_t{16} << 20;
constexpr size_t kWholeBytes = size_t{32} << 20;  // a longer document goes through the stream encoder
constexpr size_t kChunkBytes = size_t{1} << 20;

// The shards of one split: as many tokens each as allowed, the next opened by the first token that needs it.
class SplitWriter {
 public:
  SplitWriter(const fs::path& folder, const char* name, const Tokenizer& tokenizer, const BuildOptions& options)
      : folder_(folder),
        name_(name),
        vocab_size_(tokenizer.vocab_size()),
        hash_(tokenizer_hash_from_hex(tokenizer.hash(), "the tokenizer")),
        shard_tokens_(options.shard_tokens),
        most_shards_(options.most_shards) {}

  void add(std::span<const int32_t> ids) {
    while (!ids.empty()) {
      if (writer_ && writer_->tokens() == shard_tokens_) commit();
      if (!writer_) open();
      const size_t n = std::min(ids.size(), static_cast<size_t>(shard_tokens_ - writer_->tokens()));
      writer_->add(ids.first(n));
      ids = ids.subspan(n);
      info.tokens += static_cast<int64_t>(n);
    }
  }
  void end_document(size_t bytes) {
    if (!writer_) open();
    writer_->end_document();
    ++info.documents, info.bytes += static_cast<int64_t>(bytes);
  }
  void commit() {
    if (writer_) writer_->commit();
    writer_.reset();
  }

  SplitInfo info;

 private:
  void open() {
    if (info.shards == most_shards_)
      fail("more than {} shards of {} tokens; give a larger shard_tokens", most_shards_, shard_tokens_);
    const fs::path path = folder_ / fmt::format("{}_{:05d}.tok", name_, info.shards++);
    writer_ = std::make_unique<ShardWriter>(path, vocab_size_, hash_);
  }
  const fs::path& folder_;
  const char* name_;
  int64_t vocab_size_;
  TokenizerHash hash_;
  int64_t shard_tokens_, most_shards_;
  std::unique_ptr<ShardWriter> writer_;
};

// Runs f; its errors know offsets in the document, and the file is known here.
template <class F>
auto named(const Document& d, const F& f) {
  try {
    return f();
  } catch (const RunError&) {
    throw;
  } catch (const Error& e) {
    fail("{}: {}{}", d.input->name, d.offset == 0 ? "" : fmt::format("in the document at byte {}: ", d.offset),
         e.what());
  }
}

class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, const BuildOptions& options, int64_t total, const BuildProgress& progress)
      : tokenizer_(tokenizer), total_(total), progress_(progress) {
    if (!options.end_token.empty()) end_ = tokenizer.special_id(options.end_token);
  }

  // Both sides of a single document that is split count as documents.
  void add(const Document& d, SplitWriter& to) {
    if (&to != group_to_) flush();
    group_to_ = &to;
    if (d.text.size() > kWholeBytes) {
      flush();
      stream(d, to);
      return;
    }
    group_.push_back(d);
    group_bytes_ += d.text.size();
    if (group_bytes_ >= kGroupBytes) flush();
  }

  void flush() {
    std::vector<std::vector<int32_t>> ids(group_.size());
    if (group_.size() == 1) {
      ids[0] = named(group_[0], [&] { return tokenizer_.encode_parallel(group_[0].text); });
    } else {
      parallel_for(static_cast<int64_t>(group_.size()), 1, [&](int64_t b, int64_t e) {
        for (size_t i = static_cast<size_t>(b); i < static_cast<size_t>(e); ++i)
          ids[i] = named(group_[i], [&] { return tokenizer_.encode(group_[i].text); });
      });
    }
    for (size_t i = 0; i < group_.size(); ++i) {
      group_to_->add(ids[i]);
      finish(group_[i], *group_to_);
      advance(group_[i].text.size());
    }
    group_.clear(), group_bytes_ = 0;
  }

 private:
  void stream(const Document& d, SplitWriter& to) {
    StreamEncoder encoder(tokenizer_);
    std::vector<int32_t> ids;
    for (size_t at = 0; at < d.text.size(); at += kChunkBytes) {
      const std::string_view chunk = d.text.substr(at, kChunkBytes);
      ids.clear();
      named(d, [&] { encoder.push(chunk, ids); });
      to.add(ids);
      advance(chunk.size());
    }
    ids.clear();
    named(d, [&] { encoder.finish(ids); });
    to.add(ids);
    finish(d, to);
  }

  void finish(const Document& d, SplitWriter& to) {
    if (end_) to.add(std::span(&*end_, 1));
    to.end_document(d.text.size());
  }

  void advance(size_t bytes) {
    done_ += static_cast<int64_t>(bytes);
    if (progress_) progress_(done_, total_);
  }

  const Tokenizer& tokenizer_;
  std::optional<int32_t> end_;
  std::vector<Document> group_;
  size_t group_bytes_ = 0;
  SplitWriter* group_to_ = nullptr;
  int64_t done_ = 0, total_ = 0;
  const BuildProgress& progress_;
};

Json split_json(const SplitInfo& s) {
  Json json = Json::object();
  json.set("tokens", s.tokens).set("documents", s.documents).set("bytes", s.bytes).set("shards", s.shards);
  return json;
}

void write_info(const fs::path& folder, const DataInfo& info, const BuildOptions& options) {
  Json tokenizer = Json::object(), inputs = Json::array(), json = Json::object();
  tokenizer.set("kind", info.tokenizer_kind).set("hash", info.tokenizer_hash).set("vocab_size", info.vocab_size);
  for (const std::string& input : options.inputs) inputs.push_back(input);
  json.set("tokenizer", tokenizer).set("train", split_json(info.train)).set("val", split_json(info.val));
  json.set("val_fraction", options.val_fraction).set("separator", options.separator).set("inputs", inputs);
  write_file_atomic(folder / "data.json", json.dump(2) + "\n");
}

void check_options(const BuildOptions& o) {
  if (!(o.val_fraction >= 0 && o.val_fraction < 1))
    fail("val_fraction is {}; it must be at least 0 and below 1", o.val_fraction);
  if (o.shard_tokens < 1) fail("shard_tokens is {}; it must be at least 1", o.shard_tokens);
  if (o.out.empty()) fail("the data needs a folder to be written to");
  std::error_code error;
  if (!fs::exists(o.out, error) || (fs::is_directory(o.out, error) && fs::is_empty(o.out, error))) return;
  if (!fs::is_directory(o.out, error)) fail("{}: is a file; the data needs a folder", o.out.string());
  if (!o.overwrite) fail("{}: is not empty; name another folder, or ask to overwrite it", o.out.string());
  if (!fs::exists(o.out / "data.json", error))
    fail("{}: holds no data.json, so it is not a data folder and is not overwritten", o.out.string());
}

// The hidden folder in which everything is made; removed with all it holds unless it took its place.
class WorkFolder {
 public:
  explicit WorkFolder(const fs::path& out) {
    std::error_code error;
    out_ = fs::absolute(out, error).lexically_normal();
    if (error) fail("{}: is no folder name ({})", out.string(), error.message());
    if (!out_.has_filename()) out_ = out_.parent_path();  // "data/"
    path_ = out_.parent_path() / ("." + out_.filename().string() + ".building");
    fs::remove_all(path_, error);  // of a run that was killed
    make_folder(path_);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

  void take_place() {
    sync_folder(path_);
    const fs::path old = out_.parent_path() / ("." + out_.filename().string() + ".old");
    std::error_code error;
    fs::remove_all(old, error);
    const bool there = fs::exists(out_, error);
    if (there) fs::rename(out_, old, error);
    if (!error) fs::rename(path_, out_, error);
    if (error) {
      std::error_code ignored;
      if (there && !fs::exists(out_, ignored)) fs::rename(old, out_, ignored);
      fail_run("{}: the folder cannot be put in place ({})", out_.string(), error.message());
    }
    sync_folder(out_.parent_path());
    fs::remove_all(old, error);
  }

 private:
  fs::path out_, path_;
};

SplitInfo read_split(const Json& json) {
  const auto number = [&](const char* key) {
    const int64_t v = json.at(key).as_int();
    if (v < 0) fail("{} is {}; it must be at least 0", key, v);
    return v;
  };
  return {number("tokens"), number("documents"), number("bytes"), number("shards")};
}

}  // namespace

DataInfo build_data(const Tokenizer& tokenizer, const BuildOptions& options, const BuildProgress& progress) {
  check_options(options);
  WorkFolder work(options.out);
  const std::vector<Input> inputs = open_inputs(options.inputs, work.path());
  const Split split =
      find_split(inputs, options.separator, options.val_fraction, tokenizer.kind() == TokenizerKind::kChar);
  SplitWriter train(work.path(), "train", tokenizer, options);
  SplitWriter val(work.path(), "val", tokenizer, options);
  Encoder encoder(tokenizer, options, split.total_bytes, progress);
  int64_t index = 0;
  for_each_document(inputs, options.separator, [&](const Document& d) {
    if (split.byte > 0) {
      encoder.add({d.input, d.offset, d.text.substr(0, split.byte)}, train);
      encoder.add({d.input, d.offset + split.byte, d.text.substr(split.byte)}, val);
    } else {
      encoder.add(d, index < split.document ? train : val);
    }
    ++index;
  });
  encoder.flush();
  train.commit();
  val.commit();
  DataInfo info{train.info, val.info, tokenizer_kind_name(tokenizer.kind()), tokenizer.hash(), tokenizer.vocab_size()};
  make_folder(work.path() / "tokenizer");
  tokenizer.save(work.path() / "tokenizer");
  write_info(work.path(), info, options);
  work.take_place();
  return info;
}

DataInfo read_data_info(const fs::path& folder) {
  const fs::path path = folder / "data.json";
  const Json json = Json::parse(read_file(path), path.string());
  try {
    const Json& tokenizer = json.at("tokenizer");
    return {read_split(json.at("train")), read_split(json.at("val")), tokenizer.at("kind").as_string(),
            tokenizer.at("hash").as_string(), tokenizer.at("vocab_size").as_int()};
  } catch (const Error& e) {
    fail("{}: {}", path.string(), e.what());
  }
}

}  // namespace tally
