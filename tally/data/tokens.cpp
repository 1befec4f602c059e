// Finds out what a path means, maps it, and reads ranges that may cross shards.
#include "tally/data/tokens.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/io/npy.h"

namespace tally {
namespace {

// "data.bin:u32" -> {"data.bin", u32}; also by extension. Empty type when the name says nothing.
std::pair<std::string, std::optional<IdType>> raw_type(const std::string& path) {
  const size_t colon = path.rfind(':');
  if (colon != std::string::npos && colon > 0)
    if (const auto type = id_type_from_name(path.substr(colon + 1))) return {path.substr(0, colon), type};
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".bin") return {path, IdType::kU16};
  return {path, extension.empty() ? std::nullopt : id_type_from_name(extension.substr(1))};
}

std::vector<fs::path> shards_of(const fs::path& folder, const std::string& split) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(split + "_") && name.ends_with(".tok")) files.push_back(it->path());
  }
  if (error) fail("{}: the folder cannot be read ({})", folder.string(), error.message());
  if (files.empty()) fail("{}: holds no {}_*.tok shard", folder.string(), split);
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return files;
}

}  // namespace

void TokenSource::add(Part part) {
  part.begin = size_;
  size_ += part.ids.size();
  parts_.push_back(std::move(part));
}

TokenSource TokenSource::open(const std::string& path, int64_t vocab_size, const std::string& split) {
  TokenSource source;
  source.vocab_size_ = vocab_size;
  const auto add_shard = [&](const fs::path& file) {
    const auto shard = std::make_shared<const Shard>(file);
    source.add({file.string(), shard->ids(), 0, shard, shard.get()});
  };
  const auto [file, type] = raw_type(path);
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (const fs::path& shard : shards_of(path, split)) add_shard(shard);
    source.require_tokenizer(source.parts_.front().shard->tokenizer_hash());
  } else if (type && !(file != path && fs::exists(path, error))) {
    const auto mapped = std::make_shared<const MappedFile>(file);
    source.add({file, parse_raw_ids(mapped->bytes(), *type, file), 0, mapped, nullptr});
  } else if (path.ends_with(".npy")) {
    const auto npy = std::make_shared<const NpyFile>(path);
    source.add({path, npy->at("").ids(path), 0, npy, nullptr});
  } else if (path.ends_with(".tok") || !fs::exists(path, error)) {
    add_shard(path);
  } else {
    fail("{}: what it holds is not known; add :u16, :u32 or :i32 to the name of a headerless file of token ids", path);
  }
  return source;
}

int64_t TokenSource::documents() const {
  int64_t n = 0;
  for (const Part& p : parts_) n += p.shard == nullptr ? 0 : p.shard->documents();
  return n;
}

int32_t TokenSource::at(int64_t position) const {
  int32_t id = 0;
  read(position, 1, &id);
  return id;
}

void TokenSource::read(int64_t start, int64_t n, int32_t* out) const {
  if (start < 0 || n < 0 || start > size_ || n > size_ - start)
    fail("tokens {} to {} were asked for, but the data holds {}", start, start + n, size_);
  auto part = std::upper_bound(parts_.begin(), parts_.end(), start,
                               [](int64_t position, const Part& p) { return position < p.begin; });
  for (--part; n > 0; ++part) {
    const int64_t inside = start - part->begin, count = std::min(n, part->ids.size() - inside);
    const int64_t bad = part->ids.copy(inside, count, vocab_size_, out);
    if (bad >= 0)
      fail("{}: token {} at position {} is outside the vocabulary of {}", part->file, out[bad - inside], bad,
           vocab_size_);
    start += count, n -= count, out += count;
  }
}

void TokenSource::verify() const {
  for (const Part& p : parts_)
    if (p.shard != nullptr) p.shard->verify();
}

void TokenSource::require_tokenizer(const TokenizerHash& hash) const {
  for (const Part& p : parts_)
    if (p.shard != nullptr) p.shard->require_tokenizer(hash);
}

}  // namespace tally
