// Streams. A pre-token is settled when no text behind the one that is surely not the start of a special token
// changes it; everything from the first unsettled byte on is held.
#include <algorithm>

#include "tally/base/error.h"
#include "tally/text/bpe_text.h"
#include "tally/text/nfc.h"
#include "tally/text/pattern.h"
#include "tally/text/tokenizer.h"
#include "tally/text/tokenizer_impl.h"
#include "tally/text/utf8.h"

namespace tally {
namespace {

// The last place where `text` may be cut whatever form its characters have, or 0.
size_t last_border(const Pattern& pattern, std::string_view text) {
  for (size_t back = 64; back < text.size() * 2; back *= 2) {
    size_t at = pattern.next_safe_border(text, text.size() - std::min(back, text.size())), last = text.size();
    while (at < text.size()) last = at, at = pattern.next_safe_border(text, at + 1);
    if (last < text.size()) return last;
  }
  return 0;
}

// Encodes the front of `text` that more text behind it cannot change and returns its bytes; `text` holds no special
// token and stands at `offset`. Pre-tokens are encoded one by one: the settled front on its own could split otherwise
// (the two pieces of "\n\nx" before x would be one).
size_t encode_front(const TokenizerImpl& impl, std::string_view text, size_t offset, std::vector<int32_t>& out) {
  size_t at = 0;
  if (impl.kind == TokenizerKind::kBpe) {
    if (impl.nfc) text = text.substr(0, nfc_settled(text));
    if (impl.nfc && !is_nfc(text)) {
      at = last_border(impl.pattern, text);
      impl.encode_plain(text.substr(0, at), offset, out, impl.stream_scratch);
      return at;
    }
    std::unique_ptr<BpeScratch> scratch = impl.stream_scratch.take();
    BpeTextEncoder encoder(*impl.bpe, text, &out, *scratch);
    while (at < text.size()) {
      const size_t length = impl.pattern.final_piece(text, at);
      if (length == 0) break;
      encoder.add(text.substr(at, length));
      at += length;
    }
    encoder.finish();
    impl.stream_scratch.give(std::move(scratch));
    return at;
  }
  if (impl.kind == TokenizerKind::kWord) {
    while (at < text.size()) {
      const size_t length = impl.pattern.final_piece(text, at);
      if (length == 0) break;
      at += length;
    }
    if (at > 0) impl.encode_words(text.substr(0, at), offset, out, nullptr);
    return at;
  }
  if (impl.kind == TokenizerKind::kByte) at = text.size();
  while (at < text.size()) {
    const Utf8Char c = utf8_next(text.data() + at, text.size() - at);
    if (c.status == Utf8Status::kIncomplete) break;
    at += c.length;
  }
  impl.encode_plain(text.substr(0, at), offset, out, impl.stream_scratch);
  return at;
}

}  // namespace

StreamEncoder::StreamEncoder(Tokenizer tokenizer, const SpecialPolicy& policy)
    : tokenizer_(std::move(tokenizer)),
      filter_(std::make_shared<const SpecialFilter>(tokenizer_.impl_->specials, policy)) {}
StreamEncoder::StreamEncoder(Tokenizer tokenizer, bool allow_special)
    : StreamEncoder(std::move(tokenizer), allow_special ? Specials::kAllow : Specials::kAsText) {}

void StreamEncoder::push(std::string_view chunk, std::vector<int32_t>& out) {
  held_ += chunk;
  if (held_.size() >= try_at_) advance(out, false);
}

void StreamEncoder::finish(std::vector<int32_t>& out) {
  advance(out, true);
  try_at_ = 0, consumed_ = 0;
}

void StreamEncoder::advance(std::vector<int32_t>& out, bool at_end) {
  const size_t done = encode_settled(held_, out, at_end);
  held_.erase(0, done);
  consumed_ += done;
  try_at_ = 2 * held_.size();
}

size_t StreamEncoder::encode_settled(std::string_view text, std::vector<int32_t>& out, bool at_end) const {
  static const SpecialSet none;
  const TokenizerImpl& impl = *tokenizer_.impl_;
  const SpecialSet& specials = filter_->search() ? impl.specials : none;
  // From `unsure` on, a special token could begin that is not all here yet, or a longer one than is seen.
  const size_t keep = at_end || specials.empty() ? 0 : specials.longest() - 1;
  const size_t unsure = text.size() - std::min(keep, text.size());
  size_t at = 0;
  while (at < text.size()) {
    const SpecialSet::Match match = specials.find(text, at, filter_->only());
    if (match.begin < unsure || at_end) {
      filter_->check(match, consumed_);
      impl.encode_plain(text.substr(at, match.begin - at), consumed_ + at, out, impl.stream_scratch);
      if (match.end > match.begin) out.push_back(match.id);
      at = match.end;
      continue;
    }
    if (at >= unsure) break;
    return at + encode_front(impl, text.substr(at, unsure - at), consumed_ + at, out);
  }
  return at;
}

std::string StreamDecoder::push(int32_t id) { return utf8_repair(tokenizer_.token_bytes(id), pending_, false); }

std::string StreamDecoder::finish() { return utf8_repair({}, pending_, true); }

}  // namespace tally
