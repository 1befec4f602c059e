// Distinct pre-tokens of texts with their counts; the first stage of BPE training and of a word vocabulary.
// Texts are cut into parts at safe borders, so that no pre-token or special token is cut. A part is counted in a small
// table that fits the cache, which is emptied into kShards common tables by the word's hash. Sums do not depend on
// order: the result is the same for any number of threads. Files and pipes are read in blocks and not held whole.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tally/base/file.h"
#include "tally/text/pattern.h"
#include "tally/text/specials.h"

namespace tally {

// Called from the calling thread only, often; total 0 means that it is not known. Phases: "reading" (bytes), "merging".
using TrainProgress = std::function<void(const char* phase, int64_t done, int64_t total)>;

struct WordCount {
  std::string_view word;
  int64_t count;
};

enum class WordOrder {
  kAny,       // fastest; may differ from run to run
  kBytes,     // ascending
  kFirstMet,  // as the words first occur in the texts in the order they were added
};

struct WordList {
  std::vector<WordCount> words;
  std::vector<std::shared_ptr<const void>> storage;  // what the words are views into
};

struct WordCounterOptions {
  int64_t max_memory = 0;  // bytes of the tables; Error naming the need when they would take more; 0: no limit
  TrainProgress progress = {};
  int64_t total_bytes = 0;  // for progress
};

class WordCounter {
 public:
  WordCounter(Pattern pattern, SpecialSet specials, WordCounterOptions options = {});
  ~WordCounter();

  void add(std::span<const std::string_view> texts);  // each stands alone
  void add(FileReader& file);                         // a file that stands alone, read in blocks

  int64_t bytes_read() const;
  // The words; the counter is then empty.
  WordList take(WordOrder order);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Pre-tokens of the texts between special tokens, ascending by bytes.
WordList count_words(std::span<const std::string_view> texts, const SpecialSet& specials,
                     const Pattern& pattern = Pattern());

}  // namespace tally
