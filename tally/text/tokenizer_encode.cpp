// Text to ids, in all its forms.
#include <algorithm>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/text/bpe_text.h"
#include "tally/text/nfc.h"
#include "tally/text/pattern.h"
#include "tally/text/tokenizer.h"
#include "tally/text/tokenizer_impl.h"
#include "tally/text/utf8.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

constexpr size_t kParallelPartBytes = size_t{1} << 18;
constexpr uint64_t kDropoutStream = uint64_t{1} << 62;  // beside those of base/rng.h; plus the piece's offset

void encode_chars(const TokenizerImpl& impl, std::string_view text, size_t offset, std::vector<int32_t>& out) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i, text.size() - i);
    if (c.status != Utf8Status::kValid)
      fail("byte 0x{:02x} at offset {} is not valid UTF-8, which a char tokenizer needs",
           static_cast<unsigned char>(text[i]), offset + i);
    const auto found = impl.chars.find(c.code_point);
    if (found == impl.chars.end())
      fail("character {} (U+{:04X}) at byte {} is not in the char vocabulary; train the tokenizer on text that has it",
           quote_token(text.substr(i, c.length)), c.code_point, offset + i);
    out.push_back(found->second);
    i += c.length;
  }
}

// Borrowed from the tokenizer's pool.
class Scratch {
 public:
  explicit Scratch(BpeScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { pool_.give(std::move(scratch_)); }
  BpeScratch& operator*() const { return *scratch_; }

 private:
  BpeScratchPool& pool_;
  std::unique_ptr<BpeScratch> scratch_;
};

int64_t encode_bpe(const TokenizerImpl& impl, std::string_view text, Ids* out, BpeScratch& scratch) {
  std::string normal;
  if (impl.nfc && !is_nfc(text)) text = normal = nfc(text);
  BpeTextEncoder encoder(*impl.bpe, text, out, scratch);
  for_each_piece(impl.pattern, text, [&encoder](std::string_view piece) { encoder.add(piece); });
  encoder.finish();
  return encoder.count();
}

// Calls on_text(text, offset) and on_special(index) in order.
template <class OnText, class OnSpecial>
void for_each_part(std::string_view text, const SpecialFilter& filter, size_t offset, const OnText& on_text,
                   const OnSpecial& on_special) {
  if (!filter.search()) {
    if (!text.empty()) on_text(text, offset);
    return;
  }
  for (size_t at = 0; at < text.size();) {
    const SpecialSet::Match match = filter.find(text, at, offset);
    if (match.begin > at) on_text(text.substr(at, match.begin - at), offset + at);
    if (match.end > match.begin) on_special(match);
    at = match.end;
  }
}

// Ranges of code points from contiguous ranges of bytes.
Ranges char_ranges(std::string_view text, const Ranges& bytes) {
  Ranges chars;
  chars.reserve(bytes.size());
  int64_t index = 0;  // of the character that starts at `begin` and ends at `end`
  size_t end = 0;
  const auto width = [text](size_t at) {
    return at < text.size() ? utf8_next(text.data() + at, text.size() - at).length : 0;
  };
  end = width(0);
  const auto move_to = [&](size_t byte) {
    while (end <= byte && end < text.size()) end += width(end), ++index;
  };
  for (const auto& [first, last] : bytes) {
    move_to(static_cast<size_t>(first));
    const int64_t from = static_cast<size_t>(first) < text.size() ? index : index + !text.empty();
    if (last > first) move_to(static_cast<size_t>(last) - 1);
    chars.emplace_back(from, last > first ? index + 1 : from);
  }
  return chars;
}

}  // namespace

SpecialFilter::SpecialFilter(const SpecialSet& set, const SpecialPolicy& policy) : specials(set), rest(policy.rest()) {
  if (policy.allowed().empty() || rest == Specials::kAllow) return;
  allowed.assign(set.size(), false);
  for (const std::string& name : policy.allowed()) {
    const int64_t index = set.index_of(name);
    if (index < 0) fail("{} is to be allowed, but the tokenizer has no such special token", quote_token(name));
    allowed[static_cast<size_t>(index)] = true;
  }
}

void SpecialFilter::check(const SpecialSet::Match& match, size_t offset) const {
  if (rest != Specials::kRefuse || match.end == match.begin) return;
  if (!allowed.empty() && allowed[match.index]) return;
  fail_value(
      "the text holds the special token {} at byte {}; allow it (by name, or Specials::kAllow for all) or have it "
      "encoded as ordinary text (Specials::kAsText)",
      quote_token(specials.names()[match.index]), offset + match.begin);
}

SpecialSet::Match SpecialFilter::find(std::string_view text, size_t from, size_t offset) const {
  const SpecialSet::Match match = specials.find(text, from, only());
  check(match, offset);
  return match;
}

void TokenizerImpl::encode_plain(std::string_view text, size_t offset, Ids& out, BpeScratchPool& pool) const {
  switch (kind) {
    case TokenizerKind::kByte:
      for (const char c : text) out.push_back(static_cast<unsigned char>(c));
      return;
    case TokenizerKind::kChar:
      return encode_chars(*this, text, offset, out);
    case TokenizerKind::kWord:
      return encode_words(text, offset, out, nullptr);
    case TokenizerKind::kBpe: {
      const Scratch borrowed(pool);
      encode_bpe(*this, text, &out, *borrowed);
    }
  }
}

int64_t TokenizerImpl::encode(std::string_view text, const SpecialFilter& filter, size_t offset, Ids* out) const {
  int64_t n = 0;
  Ids kept;
  if (kind == TokenizerKind::kBpe) {
    const Scratch borrowed(scratch);
    for_each_part(
        text, filter, offset, [&](std::string_view plain, size_t) { n += encode_bpe(*this, plain, out, *borrowed); },
        [&](const SpecialSet::Match& match) {
          ++n;
          if (out != nullptr) out->push_back(match.id);
        });
    return n;
  }
  Ids& ids = out != nullptr ? *out : kept;
  const size_t before = ids.size();
  for_each_part(
      text, filter, offset, [&](std::string_view plain, size_t at) { encode_plain(plain, at, ids, scratch); },
      [&](const SpecialSet::Match& match) { ids.push_back(match.id); });
  return static_cast<int64_t>(ids.size() - before);
}

void Tokenizer::encode_append(std::string_view text, Ids& out, const SpecialPolicy& policy) const {
  impl_->encode(text, SpecialFilter(impl_->specials, policy), 0, &out);
}
void Tokenizer::encode_append(std::string_view text, Ids& out, bool allow_special) const {
  encode_append(text, out, allow_special ? Specials::kAllow : Specials::kAsText);
}

Ids Tokenizer::encode(std::string_view text, const SpecialPolicy& policy) const {
  Ids ids;
  ids.reserve(impl_->kind == TokenizerKind::kBpe ? text.size() / 3 + 1 : text.size());
  encode_append(text, ids, policy);
  return ids;
}
Ids Tokenizer::encode(std::string_view text, bool allow_special) const {
  return encode(text, allow_special ? Specials::kAllow : Specials::kAsText);
}

Ids Tokenizer::encode_parallel(std::string_view text, const SpecialPolicy& policy) const {
  // Offsets in messages must be those of the whole text, and the other kinds are fast anyway.
  if (impl_->kind != TokenizerKind::kBpe || text.size() < 2 * kParallelPartBytes) return encode(text, policy);
  const SpecialFilter filter(impl_->specials, policy);
  const SpecialSet none;
  if (filter.rest == Specials::kRefuse)
    for_each_part(
        text, filter, 0, [](std::string_view, size_t) {}, [](const auto&) {});
  const std::vector<std::string_view> parts =
      cut_text(text, filter.search() ? impl_->specials : none, kParallelPartBytes, impl_->pattern, filter.only());
  std::vector<Ids> ids(parts.size());
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      ids[i].reserve(parts[i].size() / 3 + 1);
      impl_->encode(parts[i], filter, static_cast<size_t>(parts[i].data() - text.data()), &ids[i]);
    }
  });
  size_t total = 0;
  for (const Ids& part : ids) total += part.size();
  Ids out;
  out.reserve(total);
  for (Ids& part : ids) {
    out.insert(out.end(), part.begin(), part.end());
    Ids().swap(part);
  }
  return out;
}
Ids Tokenizer::encode_parallel(std::string_view text, bool allow_special) const {
  return encode_parallel(text, allow_special ? Specials::kAllow : Specials::kAsText);
}

std::vector<Ids> Tokenizer::encode_batch(std::span<const std::string_view> texts, const SpecialPolicy& policy) const {
  const SpecialFilter filter(impl_->specials, policy);
  std::vector<Ids> ids(texts.size());
  parallel_for(static_cast<int64_t>(texts.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      impl_->encode(texts[i], filter, 0, &ids[i]);
  });
  return ids;
}

int64_t Tokenizer::count(std::string_view text, const SpecialPolicy& policy) const {
  return impl_->encode(text, SpecialFilter(impl_->specials, policy), 0, nullptr);
}

EncodedText Tokenizer::encode_with_offsets(std::string_view text, const SpecialPolicy& policy) const {
  EncodedText result;
  std::vector<uint32_t> lengths;
  const SpecialFilter filter(impl_->specials, policy);
  for_each_part(
      text, filter, 0,
      [&](std::string_view plain, size_t at) {
        const size_t before = result.ids.size();
        if (impl_->nfc && !is_nfc(plain))
          fail(
              "this tokenizer puts text into Unicode's form C (NFC), and offsets are of text that is in it; normalise "
              "it before");
        if (impl_->kind == TokenizerKind::kWord) return impl_->encode_words(plain, at, result.ids, &lengths);
        impl_->encode_plain(plain, at, result.ids, impl_->scratch);
        for (size_t i = before; i < result.ids.size(); ++i)
          lengths.push_back(static_cast<uint32_t>(impl_->tokens[result.ids[i]].size()));
      },
      [&](const SpecialSet::Match& match) {
        result.ids.push_back(match.id);
        lengths.push_back(static_cast<uint32_t>(match.end - match.begin));
      });
  TALLY_ASSERT(lengths.size() == result.ids.size());
  int64_t at = 0;
  for (const uint32_t length : lengths) {
    result.bytes.emplace_back(at, at + length);
    at += length;
  }
  result.chars = char_ranges(text, result.bytes);
  return result;
}

Ids Tokenizer::encode_with_dropout(std::string_view text, double probability, uint64_t seed,
                                   const SpecialPolicy& policy) const {
  if (kind() != TokenizerKind::kBpe)
    fail("dropout is for bpe tokenizers; this one is of kind {}", tokenizer_kind_name(kind()));
  if (!(probability >= 0 && probability <= 1)) fail_value("a dropout probability of {} is not in [0, 1]", probability);
  if (probability == 0) return encode(text, policy);
  Ids ids;
  for_each_part(
      text, SpecialFilter(impl_->specials, policy), 0,
      [&](std::string_view plain, size_t offset) {
        std::string normal;
        if (impl_->nfc && !is_nfc(plain)) plain = normal = nfc(plain);
        for_each_piece(impl_->pattern, plain, [&](std::string_view piece) {
          const size_t at = offset + static_cast<size_t>(piece.data() - plain.data());
          impl_->bpe->encode_piece(piece, ids, BpeDropout{probability, seed, kDropoutStream + at});
        });
      },
      [&ids](const SpecialSet::Match& match) { ids.push_back(match.id); });
  return ids;
}

Ranges Tokenizer::char_offsets(std::span<const int32_t> ids) const {
  const std::string bytes = decode(ids);
  Ranges ranges;
  int64_t at = 0;
  for (const int32_t id : ids) {
    const auto length = static_cast<int64_t>(impl_->tokens[id].size());
    ranges.emplace_back(at, at + length);
    at += length;
  }
  return char_ranges(bytes, ranges);
}

}  // namespace tally
