// Tokenizer folders: reading with every contradiction refused, writing, and the hash of the canonical JSON.
#include <algorithm>
#include <unordered_map>

#include <xxhash.h>

#include "tally/base/error.h"
#include "tally/base/file.h"
#include "tally/base/json.h"
#include "tally/text/tokenizer.h"
#include "tally/text/tokenizer_impl.h"
#include "tally/text/utf8.h"

namespace tally {
namespace {

constexpr const char* kConfigName = "tokenizer_config.json";
constexpr const char* kVocabName = "vocab.json";
constexpr const char* kMergesName = "merges.txt";
constexpr const char* kGpt2Special = "<|endoftext|>";

struct Config {
  TokenizerKind kind = TokenizerKind::kBpe;
  std::vector<std::pair<std::string, int32_t>> specials;
};

Config read_config(const fs::path& path) {
  const std::string name = path.string();
  const std::string text = read_file(path);
  if (text.empty()) fail("{}: the file is empty", name);
  const Json json = Json::parse(text, name);
  if (!json.is_object()) fail("{}: expected an object", name);
  const Json* kind = json.find("kind");
  if (kind == nullptr || !kind->is_string())
    fail("{}: no \"kind\" (bpe, byte or char); without this file vocab.json and merges.txt are read as GPT-2's", name);
  Config config;
  const std::string& kind_name = kind->as_string();
  if (kind_name != "bpe" && kind_name != "byte" && kind_name != "char")
    fail("{}: kind {} is not known; it is bpe, byte or char", name, quote_token(kind_name));
  config.kind = parse_tokenizer_kind(kind_name);
  const Json* pattern = json.find("pattern");
  if (config.kind == TokenizerKind::kBpe && pattern != nullptr &&
      (!pattern->is_string() || pattern->as_string() != kGpt2Pattern))
    fail("{}: the pattern must be \"{}\"", name, kGpt2Pattern);
  const Json* specials = json.find("special_tokens");
  if (specials == nullptr) return config;
  if (!specials->is_object()) fail("{}: special_tokens must be an object of tokens and ids", name);
  for (const auto& [token, id] : specials->as_object()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX)
      fail("{}: the id of special token {} is not an id", name, quote_token(token));
    config.specials.emplace_back(token, static_cast<int32_t>(id.as_int()));
  }
  return config;
}

// Each special token of the configuration must stand in the vocabulary under its id.
void check_specials(const Config& config, const std::vector<std::string>& keys, const fs::path& config_path) {
  for (const auto& [name, id] : config.specials) {
    if (static_cast<size_t>(id) >= keys.size())
      fail("{}: special token {} has id {}, but {} has {} tokens", config_path.string(), quote_token(name), id,
           kVocabName, keys.size());
    if (keys[static_cast<size_t>(id)] != name)
      fail("{}: special token {} has id {}, which is {} in {}", config_path.string(), quote_token(name), id,
           quote_token(keys[static_cast<size_t>(id)]), kVocabName);
  }
}

Tokenizer load_char(const Config& config, SpecialSet specials, const std::vector<std::string>& keys,
                    const std::string& name) {
  TokenTable tokens;
  for (size_t id = 0; id < keys.size(); ++id) {
    const std::string& key = keys[id];
    const Utf8Char c = key.empty() ? Utf8Char{} : utf8_next(key.data(), key.size());
    const bool one_char = c.status == Utf8Status::kValid && c.length == key.size() && !key.empty();
    if (specials.index_of(key) < 0 && !one_char)
      fail("{}: token {} (id {}) is neither one character nor special", name, quote_token(key), id);
    tokens.push_back(key);
  }
  return Tokenizer(make_tokenizer(config.kind, std::move(tokens), std::move(specials), {}));
}

Tokenizer load_byte(const Config& config, const SpecialSet& specials, const std::string& name) {
  std::vector<std::string> names(specials.size());
  for (const auto& [token, id] : config.specials) {
    if (id < 256 || static_cast<size_t>(id - 256) >= specials.size())
      fail("{}: special token {} has id {}; {} special tokens of a byte tokenizer have ids 256 to {}", name,
           quote_token(token), id, specials.size(), 255 + specials.size());
    names[static_cast<size_t>(id - 256)] = token;
  }
  return naming(name, [&] { return Tokenizer().with_specials(names); });
}

Json specials_json(const Tokenizer& tokenizer) {
  Json::Object specials;
  for (const auto& [name, id] : tokenizer.specials()) specials.emplace_back(name, id);
  return specials;
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& folder) {
  const fs::path config_path = folder / kConfigName, vocab_path = folder / kVocabName;
  std::error_code unreadable;  // counts as absent
  if (!fs::is_directory(folder, unreadable)) fail("{}: no such tokenizer folder", folder.string());
  const bool has_config = fs::exists(config_path, unreadable);
  if (!has_config && !fs::exists(vocab_path, unreadable))
    fail("{}: holds neither {} nor {}, so it is not a tokenizer folder", folder.string(), kConfigName, kVocabName);
  Config config;
  if (has_config) config = read_config(config_path);
  if (config.kind == TokenizerKind::kByte) {
    const SpecialSet specials = special_set(config, config_path.string());
    return load_byte(config, specials, config_path.string());
  }
  const std::vector<std::string> keys = read_vocab_json(vocab_path);
  if (!has_config) {
    const auto found = std::find(keys.begin(), keys.end(), kGpt2Special);
    if (found != keys.end()) config.specials.emplace_back(kGpt2Special, static_cast<int32_t>(found - keys.begin()));
  }
  check_specials(config, keys, config_path);
  SpecialSet specials = special_set(config, config_path.string());
  if (config.kind == TokenizerKind::kChar) return load_char(config, std::move(specials), keys, vocab_path.string());
  TokenTable tokens = bpe_tokens(keys, specials, vocab_path.string());
  std::vector<BpeMerge> merges = bpe_merges(folder / kMergesName, tokens, specials);
  return Tokenizer(make_tokenizer(config.kind, std::move(tokens), std::move(specials), std::move(merges)));
}

void Tokenizer::save(const fs::path& folder) const {
  make_folder(folder);
  if (impl_->kind != TokenizerKind::kByte) write_file_atomic(folder / kVocabName, vocab_json_text(impl_->keys()));
  if (impl_->bpe) {
    std::vector<std::pair<int32_t, int32_t>> merges;
    for (const BpeMerge& m : impl_->bpe->merges()) merges.emplace_back(m.left, m.right);
    write_file_atomic(folder / kMergesName, merges_text(impl_->tokens, merges));
  }
  Json config = Json::object();
  config.set("kind", tokenizer_kind_name(impl_->kind));
  if (impl_->bpe) config.set("pattern", kGpt2Pattern);
  config.set("special_tokens", specials_json(*this));
  write_file_atomic(folder / kConfigName, config.dump(2) + "\n");
}

const std::string& Tokenizer::hash() const {
  std::call_once(impl_->hash_once, [this] {
    Json::Object vocab;
    Json::Array merges;
    const std::vector<std::string> keys = impl_->keys();
    // Keys differ for bpe and char (make_tokenizer checks it); for byte the vocabulary is the kind.
    for (size_t id = 0; id < keys.size(); ++id) vocab.emplace_back(keys[id], static_cast<int64_t>(id));
    if (impl_->bpe)
      for (const BpeMerge& m : impl_->bpe->merges())
        merges.push_back(bytes_to_printable(impl_->tokens[m.left]) + " " + bytes_to_printable(impl_->tokens[m.right]));
    Json json = Json::object();
    json.set("kind", tokenizer_kind_name(impl_->kind)).set("pattern", impl_->bpe ? kGpt2Pattern : "");
    json.set("special_tokens", specials_json(*this)).set("vocab", std::move(vocab)).set("merges", std::move(merges));
    const std::string text = json.dump();
    const XXH128_hash_t h = XXH3_128bits(text.data(), text.size());
    impl_->hash = fmt::format("{:016x}{:016x}", h.high64, h.low64);
  });
  return impl_->hash;
}

}  // namespace tally
