// Finds out what a path means and where its ids lie, and reads ranges that may cross shards.
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
  size_ += part.size;
  parts_.push_back(std::move(part));
}

void TokenSource::add_shard(const fs::path& path) {
  const size_t file = files_->add(path);
  std::array<std::byte, kShardHeaderBytes> head{};
  const std::span there = std::span(head).first(std::min<uint64_t>(files_->size(file), head.size()));
  files_->read(file, 0, there);
  const ShardHeader h = parse_shard_header(there, files_->size(file), path.string());
  add({path.string(), file, h.type, kShardHeaderBytes, static_cast<int64_t>(h.tokens), h, 0});
}

TokenSource TokenSource::open(const std::string& path, int64_t vocab_size, const std::string& split) {
  TokenSource source;
  source.vocab_size_ = vocab_size;
  // `ids` lies in a map of the file that is let go.
  const auto add_file = [&](const std::string& name, const IdSpan& ids, uint64_t offset) {
    source.add({name, source.files_->add(name), ids.type, offset, ids.size(), std::nullopt, 0});
  };
  const auto [file, type] = raw_type(path);
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (const fs::path& shard : shards_of(path, split)) source.add_shard(shard);
    source.require_tokenizer(source.parts_.front().shard->tokenizer);
  } else if (type && !(file != path && fs::exists(path, error))) {
    const MappedFile mapped{fs::path(file)};
    add_file(file, parse_raw_ids(mapped.bytes(), *type, file), 0);
  } else if (path.ends_with(".npy")) {
    const MappedFile mapped{fs::path(path)};
    const IdSpan ids = parse_npy(mapped.bytes(), path).ids(path);
    add_file(path, ids, ids.data.empty() ? 0 : static_cast<uint64_t>(ids.data.data() - mapped.bytes().data()));
  } else if (path.ends_with(".tok") || !fs::exists(path, error)) {
    source.add_shard(path);
  } else {
    fail("{}: what it holds is not known; add :u16, :u32 or :i32 to the name of a headerless file of token ids", path);
  }
  return source;
}

int64_t TokenSource::documents() const {
  int64_t n = 0;
  for (const Part& p : parts_) n += p.shard ? static_cast<int64_t>(p.shard->documents) : 0;
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
    const int64_t inside = start - part->begin, count = std::min(n, part->size - inside);
    read_part(*part, inside, count, out);
    start += count, n -= count, out += count;
  }
}

void TokenSource::read_part(const Part& part, int64_t start, int64_t n, int32_t* out) const {
  constexpr int64_t kPiece = 1 << 16;
  const int64_t width = id_bytes(part.type);
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(n, kPiece) * width));
  for (int64_t done = 0; done < n;) {
    const int64_t count = std::min(n - done, kPiece);
    const std::span piece = std::span(bytes).first(static_cast<size_t>(count * width));
    const uint64_t offset = part.offset + static_cast<uint64_t>((start + done) * width);
    for (int tries = 0; !files_->read(part.file, offset, piece); ++tries) {
      if (tries == 3) fail_run("{}: is being written while it is read", part.name);
      accept_changed(part);
    }
    const int64_t bad = IdSpan{part.type, piece}.copy(0, count, vocab_size_, out + done);
    if (bad >= 0)
      fail("{}: token {} at position {} is outside the vocabulary of {}", part.name, out[done + bad],
           start + done + bad, vocab_size_);
    done += count;
  }
}

void TokenSource::accept_changed(const Part& part) const {
  const uint64_t before = files_->size(part.file);
  files_->accept(part.file, [&] {
    if (!part.shard && files_->size(part.file) == before) return;  // nothing says what it should hold
    try {
      verify_part(part);
    } catch (const Error& e) {
      fail_run("{} (it was replaced or written to since it was opened)", e.what());
    }
  });
}

void TokenSource::verify_part(const Part& part) const {
  const uint64_t size = files_->size(part.file);
  if (!part.shard) fail("{}: holds {} bytes now", part.name, size);
  std::vector<std::byte> bytes;
  const auto read = [&](uint64_t offset, uint64_t n) {
    bytes.resize(n);
    files_->read(part.file, offset, bytes);
    return Bytes(bytes);
  };
  const ShardHeader now = parse_shard_header(read(0, std::min<uint64_t>(size, kShardHeaderBytes)), size, part.name);
  verify_shard(now, part.name, read);
  if (!(now == *part.shard)) fail("{}: is another shard now", part.name);
}

void TokenSource::verify() const {
  for (const Part& p : parts_)
    if (p.shard) verify_part(p);
}

void TokenSource::require_tokenizer(const TokenizerHash& hash) const {
  for (const Part& p : parts_)
    if (p.shard) p.shard->require_tokenizer(hash, p.name);
}

}  // namespace tally
