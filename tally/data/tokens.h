// A sequence of token ids on disk, read by position: one `.tok` shard, one .npy, one headerless file, or a folder
// whose `train_*.tok` (or `val_*.tok`) shards follow each other in the order of their names. Nothing is loaded: files
// are mapped. A copy shares the maps; reading is safe from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
  // file, position and id when an id is outside the vocabulary.
  void read(int64_t start, int64_t n, int32_t* out) const;

  // Shards only; files without a header pass.
  void verify() const;
  void require_tokenizer(const TokenizerHash& hash) const;

 private:
  struct Part {
    std::string file;
    IdSpan ids;
    int64_t begin = 0;                  // position of its first id
    std::shared_ptr<const void> owner;  // the map behind ids
    const Shard* shard = nullptr;       // null for files without a header
  };
  void add(Part part);
  std::vector<Part> parts_;
  int64_t size_ = 0, vocab_size_ = 0;
};

}  // namespace tally
