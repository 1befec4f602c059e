// Text from a model: prompt to ids, tokens to whole characters, stop strings. What `tally generate` streams and a
// training run samples.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tally/models/model.h"
#include "tally/models/sampler.h"
#include "tally/text/tokenizer.h"

namespace tally {

struct SampleOptions {
  std::string prompt;
  int64_t max_tokens = 200;
  SamplerConfig sampler;
  std::vector<std::string> stop;
};

struct SampleResult {
  int64_t tokens = 0;
  const char* finish = "length";  // or "stop" (a stop string), "end" (the end token)
};

// on_text gets the text after the prompt as it comes: whole UTF-8 characters, never a part of a stop string. Throws
// Error for an empty stop string and for a prompt the tokenizer cannot take.
SampleResult generate_text(Model& model, const Tokenizer& tokenizer, const SampleOptions& options,
                           const std::function<void(std::string_view)>& on_text);

// Ids of a prompt. An empty one becomes the end token, which stands before every document but the first, else a line
// break, else id 0.
std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, const std::string& prompt);

// Passes text through up to the first stop string; holds back what could still become one.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops);
  std::string push(std::string_view text);
  std::string finish();  // what was held back, when no stop string came
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tally
