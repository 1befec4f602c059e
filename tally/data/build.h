// Text to a data folder: train_00000.tok ..., val_00000.tok ..., tokenizer/ and data.json. The folder appears complete
// (built beside it under a hidden name, then renamed) or not at all.
//
// Documents are files, or the parts of a file between separators; empty ones are dropped. Validation is the last
// `val_fraction` of the text by bytes: with several documents the border between documents that is nearest to it; with
// one document a border between characters, at floor(characters * (1 - val_fraction)) for a char tokenizer and at the
// next character from byte floor(bytes * (1 - val_fraction)) for the others.
// Input is mapped and encoded in parts of at most 32 MiB, so memory does not grow with the corpus.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tally/base/file.h"
#include "tally/text/tokenizer.h"

namespace tally {

struct BuildOptions {
  std::vector<std::string> inputs;  // files, patterns (*, ?, [..]), "-" for standard input
  fs::path out;
  double val_fraction = 0.1;                // in [0, 1); 0 writes no validation shards
  std::string separator;                    // between documents in a file; empty: a file is a document
  std::string end_token = "<|endoftext|>";  // put behind each document if the tokenizer has it; empty: never
  int64_t shard_tokens = 100'000'000;       // most tokens of a shard
  int64_t most_shards = 100'000;            // of a split: names have five digits and are read in their order
  bool overwrite = false;                   // replace a data folder that is there
};

struct SplitInfo {
  int64_t tokens = 0;  // end tokens included
  int64_t documents = 0;
  int64_t bytes = 0;  // of text, separators excluded: what bits per byte divides by
  int64_t shards = 0;
};

// What data.json says.
struct DataInfo {
  SplitInfo train, val;
  std::string tokenizer_kind, tokenizer_hash;
  int64_t vocab_size = 0;
};

using BuildProgress = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

// Throws Error naming what is wrong: a missing or empty input, text too small to split, a folder that is not empty,
// a character the tokenizer lacks (file and offset); RunError on a full disk. The folder is then as it was.
DataInfo build_data(const Tokenizer& tokenizer, const BuildOptions& options, const BuildProgress& progress = {});

// Throws Error naming the folder when it has no readable data.json.
DataInfo read_data_info(const fs::path& folder);

}  // namespace tally
