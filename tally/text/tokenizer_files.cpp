// Tokenizer folders: reading with every contradiction refused, writing, and the hash of the canonical JSON. Which of
// the readers is meant is decided here; those of other formats are in tiktoken_tokenizer.cpp and tokenizer_json.cpp.
#include "tally/text/tokenizer_files.h"

#include <algorithm>

#include <xxhash.h>

#include "tally/base/file.h"
#include "tally/base/json.h"
#include "tally/text/utf8.h"
#include "tally/text/word.h"

namespace tally {
namespace {

constexpr const char* kConfigName = "tokenizer_config.json";
constexpr const char* kVocabName = "vocab.json";
constexpr const char* kMergesName = "merges.txt";
constexpr const char* kJsonName = "tokenizer.json";
constexpr const char* kGpt2Special = "<|endoftext|>";

struct Config {
  std::vector<NamedId> specials;
  TokenizerParts parts;  // all but tokens, special tokens and merges
};

bool read_flag(const Json& json, const char* key, const std::string& name) {
  const Json* value = json.find(key);
  if (value == nullptr) return false;
  if (!value->is_bool()) fail("{}: {} must be true or false", name, key);
  return value->as_bool();
}

void read_options(const Json& json, const std::string& name, Config& config) {
  TokenizerParts& parts = config.parts;
  if (const Json* pattern = json.find("pattern")) {
    if (!pattern->is_string()) fail("{}: the pattern must be a name", name);
    parts.pattern = naming(name, [&] { return Pattern::named(pattern->as_string()); });
  }
  parts.rules.ignore_merges = read_flag(json, "ignore_merges", name);
  if (const Json* normalizer = json.find("normalizer")) {
    if (!normalizer->is_string() || normalizer->as_string() != "nfc") fail("{}: the normalizer must be \"nfc\"", name);
    parts.nfc = true;
  }
  const Json* plain = json.find("not_special");
  if (plain == nullptr) return;
  if (!plain->is_array()) fail("{}: not_special must be a list of special tokens", name);
  for (const Json& token : plain->as_array()) {
    if (!token.is_string()) fail("{}: not_special must be a list of special tokens", name);
    const auto found = std::find_if(config.specials.begin(), config.specials.end(),
                                    [&](const NamedId& s) { return s.name == token.as_string(); });
    if (found == config.specials.end())
      fail("{}: {} of not_special is not among special_tokens", name, quote_token(token.as_string()));
    parts.not_special.push_back(found->id);
  }
  std::sort(parts.not_special.begin(), parts.not_special.end());
  const auto twice = std::adjacent_find(parts.not_special.begin(), parts.not_special.end());
  if (twice != parts.not_special.end()) fail("{}: not_special has the token of id {} twice", name, *twice);
}

Config read_config(const Json& json, const std::string& name) {
  if (!json.is_object()) fail("{}: expected an object", name);
  const Json* kind = json.find("kind");
  if (kind == nullptr || !kind->is_string())
    fail("{}: no \"kind\" (bpe, byte, char or word); without this file vocab.json and merges.txt are read as GPT-2's",
         name);
  Config config;
  config.parts.kind = naming(name, [&] { return parse_tokenizer_kind(kind->as_string()); });
  if (const Json* specials = json.find("special_tokens")) {
    if (!specials->is_object()) fail("{}: special_tokens must be an object of tokens and ids", name);
    for (const auto& [token, id] : specials->as_object()) {
      if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX)
        fail("{}: the id of special token {} is not an id", name, quote_token(token));
      config.specials.push_back({token, static_cast<int32_t>(id.as_int())});
    }
  }
  if (config.parts.kind == TokenizerKind::kWord) config.parts.pattern = Pattern::named(kWordPattern);
  if (config.parts.kind == TokenizerKind::kBpe || config.parts.kind == TokenizerKind::kWord)
    read_options(json, name, config);
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
    const bool one_char = c.status == Utf8Status::kValid && c.length == key.size();
    if (!key.empty() && specials.index_of(key) < 0 && !one_char)
      fail("{}: token {} (id {}) is neither one character nor special", name, quote_token(key), id);
    tokens.push_back(key);
  }
  return Tokenizer(make_tokenizer(config.parts.kind, std::move(tokens), std::move(specials), {}));
}

Tokenizer load_byte(const Config& config, const std::string& name) {
  std::vector<std::string> names(config.specials.size());
  for (const auto& [token, id] : config.specials) {
    if (id < 256 || static_cast<size_t>(id - 256) >= names.size())
      fail("{}: special token {} has id {}; {} special tokens of a byte tokenizer have ids 256 to {}", name,
           quote_token(token), id, names.size(), 255 + names.size());
    names[static_cast<size_t>(id - 256)] = token;
  }
  return naming(name, [&] { return Tokenizer().with_specials(names); });
}

// Settings that are as GPT-2's are left out, but for the pattern.
void set_options(const TokenizerImpl& impl, Json& json) {
  json.set("pattern", impl.pattern.name());
  if (!impl.bpe) return;
  if (impl.bpe->rules().ignore_merges) json.set("ignore_merges", true);
  if (impl.nfc) json.set("normalizer", "nfc");
  if (impl.not_special.empty()) return;
  Json::Array names;
  for (const int32_t id : impl.not_special) names.push_back(std::string(impl.tokens[id]));
  json.set("not_special", std::move(names));
}

Json specials_json(const Tokenizer& tokenizer) {
  Json::Object specials;
  for (const auto& [name, id] : tokenizer.specials()) specials.emplace_back(name, id);
  return specials;
}

// bpe, and word: its keys are written alike.
Tokenizer load_bpe(Config config, SpecialSet specials, const std::vector<std::string>& keys, const fs::path& folder) {
  const std::string vocab = (folder / kVocabName).string();
  const fs::path merges_path = folder / kMergesName;
  TokenizerParts& parts = config.parts;
  parts.tokens = bpe_tokens(keys, specials, vocab);
  if (parts.kind == TokenizerKind::kWord)
    return naming(vocab,
                  [&] { return make_word_tokenizer(parts.pattern, std::move(parts.tokens), std::move(specials)); });
  parts.merges = bpe_merges(
      read_merges(merges_path), parts.tokens, specials,
      [&](size_t line) { return fmt::format("{}:{}", merges_path.string(), line); }, kVocabName);
  parts.specials = std::move(specials);
  return naming(vocab, [&] { return Tokenizer(make_tokenizer(std::move(parts))); });
}

Tokenizer load_folder(const fs::path& folder) {
  const fs::path config_path = folder / kConfigName, vocab_path = folder / kVocabName, json_path = folder / kJsonName;
  std::error_code unreadable;  // counts as absent
  const bool has_config = fs::exists(config_path, unreadable), has_json = fs::exists(json_path, unreadable);
  if (!has_config && !has_json && !fs::exists(vocab_path, unreadable))
    fail("{}: holds neither {} nor {} nor {}, so it is not a tokenizer folder", folder.string(), kConfigName, kJsonName,
         kVocabName);
  Config config;
  if (has_config) {
    const std::string name = config_path.string();
    const Json json = Json::parse(text_of_file(config_path), name);
    // Folders with tokenizer.json have a file of this name too, in which other things stand.
    if (has_json && json.is_object() && json.find("kind") == nullptr) return read_tokenizer_json(json_path);
    config = read_config(json, name);
  } else if (has_json) {
    return read_tokenizer_json(json_path);
  }
  if (config.parts.kind == TokenizerKind::kByte) {
    special_set(config.specials, config_path.string());
    return load_byte(config, config_path.string());
  }
  const std::vector<std::string> keys = read_vocab_json(vocab_path);
  if (!has_config) {
    const auto found = std::find(keys.begin(), keys.end(), kGpt2Special);
    if (found != keys.end()) config.specials.push_back({kGpt2Special, static_cast<int32_t>(found - keys.begin())});
  }
  check_specials(config, keys, config_path);
  SpecialSet specials = special_set(config.specials, config_path.string());
  if (config.parts.kind == TokenizerKind::kChar)
    return load_char(config, std::move(specials), keys, vocab_path.string());
  return load_bpe(std::move(config), std::move(specials), keys, folder);
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& path, const TokenizerFileOptions& options) {
  std::error_code unreadable;  // counts as absent
  const std::string name = path.string();
  if (!fs::exists(path, unreadable)) fail("{}: no such tokenizer folder or file", name);
  const bool folder = fs::is_directory(path, unreadable);
  if (!folder && (path.extension() == ".tiktoken" || (path.extension() != ".json" && !options.pattern.empty())))
    return read_tiktoken_tokenizer(path, options);
  if (!options.pattern.empty() || !options.specials.empty())
    fail("{}: a pattern and special tokens are given for .tiktoken files only; this says them itself", name);
  if (folder) return load_folder(path);
  if (path.extension() == ".json") return read_tokenizer_json(path);
  fail("{}: not a tokenizer folder, a .tiktoken file (or one of another name, with its pattern given) or a .json file",
       name);
}

namespace {

void write_vocab_and_merges(const TokenizerImpl& impl, const fs::path& folder) {
  if (impl.kind != TokenizerKind::kByte) write_file_atomic(folder / kVocabName, vocab_json_text(impl.keys()));
  if (!impl.bpe) return;
  std::vector<std::pair<int32_t, int32_t>> merges;
  for (const BpeMerge& m : impl.bpe->merges()) merges.emplace_back(m.left, m.right);
  write_file_atomic(folder / kMergesName, merges_text(impl.tokens, merges));
}

// The two files alone are read as a tokenizer of GPT-2's pattern and its one special token.
void write_gpt2(const TokenizerImpl& impl, const fs::path& folder) {
  const auto refuse = [](const std::string& what) {
    fail("vocab.json and merges.txt alone cannot say {}; write a folder with tokenizer_config.json, or tokenizer.json",
         what);
  };
  if (!impl.bpe) refuse(fmt::format("that this is a {} tokenizer", tokenizer_kind_name(impl.kind)));
  if (impl.pattern.kind() != PatternKind::kGpt2) refuse("the pattern " + printable(impl.pattern.name()));
  if (impl.bpe->rules().ignore_merges) refuse("that pieces which are tokens need no merges");
  if (impl.nfc) refuse("that text is normalised (NFC)");
  for (const std::string& name : impl.specials.names())
    if (name != kGpt2Special) refuse("that " + quote_token(name) + " is special");
  if (fs::exists(folder / kConfigName))
    fail("{}: is there already, and would be taken for that of these files", (folder / kConfigName).string());
  make_folder(folder);
  write_vocab_and_merges(impl, folder);
}

}  // namespace

TokenizerFormat tokenizer_format_of(const fs::path& path) {
  if (path.extension() == ".tiktoken") return TokenizerFormat::kTiktoken;
  return path.extension() == ".json" ? TokenizerFormat::kJson : TokenizerFormat::kFolder;
}

void Tokenizer::save_as(const fs::path& path, TokenizerFormat format) const {
  if (format == TokenizerFormat::kByName) format = tokenizer_format_of(path);
  if (format == TokenizerFormat::kFolder) return save(path);
  naming(path.string(), [&] {
    if (format == TokenizerFormat::kGpt2) return write_gpt2(*impl_, path);
    write_file_atomic(path,
                      format == TokenizerFormat::kJson ? tokenizer_json_text(*impl_) : tiktoken_tokenizer_text(*impl_));
  });
}

void Tokenizer::save(const fs::path& folder) const {
  make_folder(folder);
  write_vocab_and_merges(*impl_, folder);
  Json config = Json::object();
  config.set("kind", tokenizer_kind_name(impl_->kind));
  if (impl_->bpe || impl_->kind == TokenizerKind::kWord) set_options(*impl_, config);
  config.set("special_tokens", specials_json(*this));
  write_file_atomic(folder / kConfigName, config.dump(2) + "\n");
}

const std::string& Tokenizer::hash() const {
  std::call_once(impl_->hash_once, [this] {
    Json::Object vocab;
    Json::Array merges;
    const std::vector<std::string> keys = impl_->keys();
    // Keys differ for bpe and char (make_tokenizer checks it); for byte the vocabulary is the kind.
    for (size_t id = 0; id < keys.size(); ++id)
      if (!keys[id].empty()) vocab.emplace_back(keys[id], static_cast<int64_t>(id));
    if (impl_->bpe)
      for (const BpeMerge& m : impl_->bpe->merges())
        merges.push_back(bytes_to_printable(impl_->tokens[m.left]) + " " + bytes_to_printable(impl_->tokens[m.right]));
    Json json = Json::object();
    json.set("kind", tokenizer_kind_name(impl_->kind)).set("pattern", "");
    if (impl_->bpe || impl_->kind == TokenizerKind::kWord) set_options(*impl_, json);
    json.set("special_tokens", specials_json(*this)).set("vocab", std::move(vocab)).set("merges", std::move(merges));
    const std::string text = json.dump();
    const XXH128_hash_t h = XXH3_128bits(text.data(), text.size());
    impl_->hash = fmt::format("{:016x}{:016x}", h.high64, h.low64);
  });
  return impl_->hash;
}

}  // namespace tally
