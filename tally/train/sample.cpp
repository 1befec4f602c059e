#include "tally/train/sample.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/models/generate.h"

namespace tally {

namespace {

constexpr const char* kEndToken = "<|endoftext|>";

}  // namespace

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& s : stops_)
    if (s.empty()) fail("a stop string is empty");
}

std::string StopFilter::push(std::string_view text) {
  if (stopped_) return "";
  held_ += text;
  size_t first = std::string::npos, keep = 0;
  for (const std::string& stop : stops_) {
    first = std::min(first, held_.find(stop));
    // The longest end of what is held that begins this stop string.
    for (size_t n = std::min(held_.size(), stop.size() - 1); n > keep; --n)
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) keep = n;
  }
  stopped_ = first != std::string::npos;
  const size_t shown = stopped_ ? first : held_.size() - keep;
  std::string out = held_.substr(0, shown);
  held_.erase(0, stopped_ ? held_.size() : shown);
  return out;
}

std::string StopFilter::finish() { return std::exchange(held_, {}); }

std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, const std::string& prompt) {
  if (!prompt.empty()) return tokenizer.encode(prompt);
  if (const auto end = tokenizer.special_id(kEndToken)) return {*end};
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.token_bytes(id) == "\n") return {id};
  return {0};
}

SampleResult generate_text(Model& model, const Tokenizer& tokenizer, const SampleOptions& options,
                           const std::function<void(std::string_view)>& on_text) {
  StopFilter filter(options.stop);
  StreamDecoder decoder(tokenizer);
  SampleResult result;
  const auto end = tokenizer.special_id(kEndToken);
  const auto show = [&](const std::string& text) {
    if (!text.empty()) on_text(text);
  };
  generate(model, prompt_ids(tokenizer, options.prompt), options.max_tokens, options.sampler, [&](int32_t id) {
    ++result.tokens;
    if (end && id == *end) {
      result.finish = "end";
      return false;
    }
    // A model may have more rows than its tokenizer has tokens.
    show(filter.push(id < tokenizer.vocab_size() ? decoder.push(id) : "\xEF\xBF\xBD"));
    if (filter.stopped()) result.finish = "stop";
    return !filter.stopped();
  });
  show(filter.push(decoder.finish()));
  show(filter.finish());
  return result;
}

}  // namespace tally
