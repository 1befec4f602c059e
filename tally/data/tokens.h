// A sequence of token ids on disk, read by position: one `.tok` shard, one .npy, one headerless file, or a folder
// whose `train_*.tok` (or `val_*.tok`) shards follow each other in the order of their names. Nothing is loaded or
// mapped: ids are read where they lie (file_pool.h), so a folder may hold any number of shards. A copy shares the
// files; reading is safe from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tally/data/file_pool.h"
#include "tally/io/ids.h"
#include "tally/io/shard.h"

namespace tally {

class TokenSource {
 public:
  TokenSource() = default;

  // path: FILE.tok, FILE.npy (u2 u4 i4 i8 u8), FILE.u16 .u32 .i32 .i64 .u64 or .bin (u16), FILE:u16 and so on for any
  // other name, or a folder. `split` ("train", "val") picks a folder's shards. Ids must be in [0, vocab_size).
  // Throws Error naming the file or folder.
  static TokenSource open(const std::string& path, int64_t vocab_size, const std::string& split = "train");

  int64_t size() const { return size_; }
  int64_t documents() const;  // ends of documents in the shards; 0 for files without them
  int32_t at(int64_t position) const;
  // Copies [start, start + n) to out, across shards. Throws Error when the range is not inside [0, size()), and naming
  // file, position and id when an id is outside the vocabulary. A file that was cut, replaced or removed since it was
  // opened is a RunError that names it; a shard that was written anew with the same content is read on.
  void read(int64_t start, int64_t n, int32_t* out) const;

  // Shards only; files without a header pass.
  void verify() const;
  void require_tokenizer(const TokenizerHash& hash) const;

  int64_t open_files() const { return files_ ? static_cast<int64_t>(files_->open_files()) : 0; }

 private:
  struct Part {
    std::string name;
    size_t file = 0;  // in files_
    IdType type = IdType::kU16;
    uint64_t offset = 0;  // of the ids in the file
    int64_t size = 0;
    std::optional<ShardHeader> shard;  // empty for files without a header
    int64_t begin = 0;                 // position of its first id
  };
  void add(Part part);
  void add_shard(const fs::path& path);
  // Its file is another one than was opened: fine when it holds the same shard.
  void accept_changed(const Part& part) const;
  void verify_part(const Part& part) const;
  void read_part(const Part& part, int64_t start, int64_t n, int32_t* out) const;
  std::shared_ptr<FilePool> files_ = std::make_shared<FilePool>();
  std::vector<Part> parts_;
  int64_t size_ = 0, vocab_size_ = 0;
};

}  // namespace tally
