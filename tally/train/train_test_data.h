// For the tests of this layer: a data folder of printable text and runs on it.
#pragma once

#include <string>

#include "tally/base/file.h"
#include "tally/data/build.h"
#include "tally/train/trainer.h"
#include "tests/support/support.h"

namespace tally::test {

// About `bytes` bytes of words drawn from a short list, the same for the same arguments.
inline std::string sample_text(size_t bytes, uint64_t seed = 1) {
  constexpr const char* kWords[] = {"the ",   "river ", "of ",    "stone ", "and ",   "light\n", "a ",
                                    "small ", "bird ",  "sings ", "over ",  "hills ", "in ",     "rain. "};
  std::string text;
  for (uint64_t i = 0; text.size() < bytes; ++i) text += kWords[random_below(seed, 9, i, std::size(kWords))];
  return text;
}

inline void make_data(const fs::path& folder, TokenizerKind kind = TokenizerKind::kByte, size_t bytes = 20000,
                      double val_fraction = 0.1) {
  const std::string text = sample_text(bytes);
  const fs::path file = folder.string() + ".txt";
  write_file_atomic(file, text);
  TokenizerSpec spec;
  spec.kind = kind;
  const std::string_view texts[] = {text};
  BuildOptions options;
  options.inputs = {file.string()};
  options.out = folder;
  options.val_fraction = val_fraction;
  build_data(train_tokenizer(spec, texts), options);
}

// `tiny` made smaller still: a step takes a millisecond.
inline RunConfig small_config(const fs::path& data) {
  RunConfig c;
  c.model = preset("tiny");
  c.model.d_model = 32, c.model.d_ff = 48, c.model.n_kv_heads = 2, c.model.context = 16;
  c.data.dir = data.string();
  c.train.steps = 12, c.train.batch = 3, c.train.log_every = 3, c.train.eval_every = 4, c.train.eval_batches = 5;
  c.train.checkpoint_every = 4, c.train.keep_last = 2, c.train.sample_tokens = 8;
  return c;
}

inline TrainerOptions quiet_run(const fs::path& out, bool resume = false) {
  TrainerOptions options;
  options.out = out;
  options.resume = resume;
  options.quiet = true;
  return options;
}

}  // namespace tally::test
