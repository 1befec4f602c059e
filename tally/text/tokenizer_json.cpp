// Reading tokenizer.json of huggingface/tokenizers, byte-level BPE: what each component means there (tokenizers/src/
// {models/bpe,pre_tokenizers,normalizers,processors,decoders}) is said with our pattern, merges and special tokens, or
// refused under the path where it stands in the file. A setting that changes no id is passed over: the decoder (bytes
// are bytes), offsets (trim_offsets), and what the post-processor puts around the ids (see docs/text.md).
#include <algorithm>
#include <unordered_map>

#include "tally/base/json.h"
#include "tally/text/nfc.h"
#include "tally/text/tokenizer_files.h"
#include "tally/text/tokenizer_json.h"

namespace tally {
namespace {

// A value and where it stands.
struct Node {
  const std::string& file;
  std::string path;
  const Json* json;

  template <class... A>
  [[noreturn]] void refuse(fmt::format_string<A...> format, A&&... args) const {
    fail("{}: {}: {}", file, path.empty() ? "the file" : path, fmt::format(format, std::forward<A>(args)...));
  }
  const Json::Object& object() const {
    if (!json->is_object()) refuse("expected an object");
    return json->as_object();
  }
  const Json::Array& array() const {
    if (!json->is_array()) refuse("expected an array");
    return json->as_array();
  }
  Node item(size_t i) const { return {file, fmt::format("{}[{}]", path, i), &array()[i]}; }
  Node at(std::string_view key) const {  // null when absent
    static const Json null;
    object();
    const Json* found = json->find(key);
    return {file, path.empty() ? std::string(key) : fmt::format("{}.{}", path, key), found == nullptr ? &null : found};
  }
  bool is_null() const { return json->is_null(); }
  const std::string& text() const {
    if (!json->is_string()) refuse("expected a string");
    return json->as_string();
  }
  bool flag(std::string_view key, bool absent) const {
    const Node node = at(key);
    if (node.is_null()) return absent;
    if (!node.json->is_bool()) node.refuse("expected true or false");
    return node.json->as_bool();
  }
  // Refuses every key but these, unless its value is null or false: an option that is not known may change the ids.
  void only(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : object()) {
      if (value.is_null() || (value.is_bool() && !value.as_bool())) continue;
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        fail("{}: {}{}{}: this setting is not known", file, path, path.empty() ? "" : ".", printable(key));
    }
  }
  const std::string& type() const { return at("type").text(); }
  [[noreturn]] void unknown_type(std::string_view known) const {
    at("type").refuse("{} is not supported; here it may be {}", quote_token(type()), known);
  }
};

// The leaves of a component that may be a Sequence, which lists others under `key`.
void flatten(const Node& node, std::string_view key, std::vector<Node>& leaves) {
  if (node.is_null()) return;
  if (node.type() != "Sequence") {
    leaves.push_back(node);
    return;
  }
  node.only({"type", key});
  const Node list = node.at(key);
  for (size_t i = 0; i < list.array().size(); ++i) flatten(list.item(i), key, leaves);
}

std::vector<Node> leaves_of(const Node& node, std::string_view key) {
  std::vector<Node> leaves;
  flatten(node, key, leaves);
  return leaves;
}

bool read_normalizer(const Node& node) {
  bool nfc = false;
  for (const Node& leaf : leaves_of(node, "normalizers")) {
    if (leaf.type() != "NFC") leaf.unknown_type("NFC, or no normalizer");
    leaf.only({"type"});
    nfc = true;
  }
  return nfc;
}

const std::string& read_split(const Node& split) {
  split.only({"type", "pattern", "behavior", "invert"});
  const Node pattern = split.at("pattern");
  pattern.only({"Regex"});
  const std::string& behavior = split.at("behavior").text();
  const bool invert = split.flag("invert", false);
  // Inverted and Removed drops what no match covers, which these patterns leave none of; it is how files made from
  // tiktoken's encodings say Isolated.
  const std::string& expression = pattern.at("Regex").text();
  if (behavior == "Isolated") return expression;
  if (behavior != "Removed" || !invert)
    split.at("behavior").refuse("{} is not supported; it may be Isolated", quote_token(behavior));
  const Pattern alone =
      naming(fmt::format("{}: {}", pattern.file, pattern.path), [&] { return pattern_of_splits({expression}); });
  if (alone.kind() == PatternKind::kRegex)
    split.at("behavior").refuse("Removed drops the text that the expression does not match; it may be Isolated");
  return expression;
}

Pattern read_pre_tokenizer(const Node& node) {
  std::vector<Node> leaves = leaves_of(node, "pretokenizers");
  if (leaves.empty() || leaves.back().type() != "ByteLevel")
    node.refuse("the last step must be ByteLevel: only byte-level BPE can be read");
  const Node byte_level = leaves.back();
  leaves.pop_back();
  byte_level.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (byte_level.flag("add_prefix_space", true))
    byte_level.at("add_prefix_space")
        .refuse("true is not supported: text would get a space in front; it must be false");
  const bool use_regex = byte_level.flag("use_regex", true);
  if (leaves.empty() && !use_regex)
    byte_level.at("use_regex")
        .refuse("false without a Split before it leaves the whole text as one piece, which is not supported");
  std::vector<std::string> expressions;
  for (const Node& leaf : leaves) {
    if (leaf.type() == "Digits" && use_regex && leaves.size() == 1) {
      leaf.only({"type", "individual_digits"});
      return Pattern::regex(digits_expression(leaf.flag("individual_digits", false)));
    }
    if (leaf.type() != "Split") leaf.unknown_type("Split with a Regex, or Digits before a ByteLevel with use_regex");
    if (use_regex) byte_level.at("use_regex").refuse("true behind a Split would split twice, which is not supported");
    expressions.push_back(read_split(leaf));
  }
  if (expressions.empty()) return Pattern();
  return naming(fmt::format("{}: {}", node.file, node.path), [&] { return pattern_of_splits(expressions); });
}

// They add tokens around the ids, or change offsets.
void check_post_processor(const Node& node) {
  for (const Node& leaf : leaves_of(node, "processors"))
    if (leaf.type() != "ByteLevel" && leaf.type() != "TemplateProcessing" && leaf.type() != "RobertaProcessing" &&
        leaf.type() != "BertProcessing")
      leaf.unknown_type("ByteLevel or TemplateProcessing");
}

void check_decoder(const Node& node) {
  for (const Node& leaf : leaves_of(node, "decoders"))
    if (leaf.type() != "ByteLevel") leaf.unknown_type("ByteLevel");
}

void check_model(const Node& model) {
  if (!model.at("type").is_null() && model.type() != "BPE") model.unknown_type("BPE");
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  const Node dropout = model.at("dropout");
  if (!dropout.is_null() && !(dropout.json->is_number() && dropout.json->as_double() == 0))
    dropout.refuse("the ids would be random; it must be null (Tokenizer::encode_with_dropout does it on request)");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Node affix = model.at(key); !affix.is_null() && !affix.text().empty())
      affix.refuse("{} is not supported; it must be null", quote_token(affix.text()));
}

// A byte without a token would become `unk_token` or a token like <0x61>.
void check_bytes(const Node& model, const TokenTable& tokens, const SpecialSet& specials) {
  std::vector<bool> has(256, false);
  for (const int32_t id : ordinary_first(tokens, specials.ids()))
    if (tokens[id].size() == 1) has[static_cast<unsigned char>(tokens[id][0])] = true;
  if (std::find(has.begin(), has.end(), false) == has.end()) return;
  const auto missing = std::find(has.begin(), has.end(), false) - has.begin();
  if (model.flag("byte_fallback", false))
    model.at("byte_fallback").refuse("true is supported only where every byte has a token; 0x{:02x} has none", missing);
  if (!model.at("unk_token").is_null())
    model.at("unk_token").refuse("it is supported only where every byte has a token; 0x{:02x} has none", missing);
}

std::vector<MergeLine> read_merge_list(const Node& merges) {
  const auto name = [&](size_t i) { return fmt::format("{}: {}[{}]", merges.file, merges.path, i); };
  std::vector<MergeLine> lines;
  lines.reserve(merges.array().size());
  for (size_t i = 0; i < merges.array().size(); ++i) {
    const Json& json = merges.array()[i];
    if (json.is_string()) {
      lines.push_back(parse_merge(json.as_string(), i, name));
      continue;
    }
    if (!json.is_array() || json.as_array().size() != 2 || !json.as_array()[0].is_string() ||
        !json.as_array()[1].is_string())
      fail("{}: expected \"left right\" or [\"left\", \"right\"]", name(i));
    const std::string &left = json.as_array()[0].as_string(), &right = json.as_array()[1].as_string();
    lines.push_back({{}, {}, i});
    if (left.empty() || right.empty() || !printable_to_bytes(left, lines.back().left) ||
        !printable_to_bytes(right, lines.back().right))
      fail("{}: {} and {} are not two tokens of GPT-2's 256 byte characters", name(i), quote_token(left),
           quote_token(right));
  }
  return lines;
}

struct Added {
  std::vector<NamedId> tokens;
  std::vector<int32_t> not_special;  // ids
};

// Puts the tokens into `keys` where the vocabulary lacks them.
Added read_added(const Node& list, std::vector<std::string>& keys) {
  Added added;
  if (list.is_null()) return added;
  std::unordered_map<std::string_view, size_t> id_of;
  const std::vector<std::string> vocab = keys;
  for (size_t id = 0; id < vocab.size(); ++id)
    if (!vocab[id].empty()) id_of.emplace(vocab[id], id);
  const size_t limit = id_limit(vocab.size() + list.array().size());
  for (size_t i = 0; i < list.array().size(); ++i) {
    const Node token = list.item(i);
    token.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    const std::string& content = token.at("content").text();
    if (content.empty()) token.at("content").refuse("the token is empty");
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      if (token.flag(key, false)) token.at(key).refuse("true is not supported (token {})", quote_token(content));
    const Node id_node = token.at("id");
    if (!id_node.json->is_int() || id_node.json->as_int() < 0 || static_cast<size_t>(id_node.json->as_int()) >= limit)
      id_node.refuse("token {} needs an id from 0 to {}", quote_token(content), limit - 1);
    const auto id = static_cast<size_t>(id_node.json->as_int());
    if (const auto found = id_of.find(content); found != id_of.end() && found->second != id)
      id_node.refuse("token {} has id {}, but model.vocab gives it {}", quote_token(content), id, found->second);
    if (id >= keys.size()) keys.resize(id + 1);
    if (!keys[id].empty() && keys[id] != content)
      id_node.refuse("token {} has id {}, which is {}", quote_token(content), id, quote_token(keys[id]));
    keys[id] = content;
    added.tokens.push_back({content, static_cast<int32_t>(id)});
    if (!token.flag("special", false)) added.not_special.push_back(static_cast<int32_t>(id));
  }
  return added;
}

}  // namespace

Tokenizer read_tokenizer_json(const fs::path& file) {
  const std::string name = file.string();
  const Json json = Json::parse(text_of_file(file), name);
  const Node root{name, "", &json};
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  if (const Node version = root.at("version"); !version.is_null() && version.text() != "1.0")
    version.refuse("{} is not known; it is 1.0", quote_token(version.text()));
  for (const char* key : {"truncation", "padding"})
    if (!root.at(key).is_null()) root.at(key).refuse("it is not supported; set it to null");
  const Node model = root.at("model");
  if (model.is_null()) model.refuse("the file has none, so it is not a tokenizer.json");
  check_model(model);
  TokenizerParts parts;
  parts.nfc = read_normalizer(root.at("normalizer"));
  parts.pattern = read_pre_tokenizer(root.at("pre_tokenizer"));
  parts.rules.ignore_merges = model.flag("ignore_merges", false);
  check_post_processor(root.at("post_processor"));
  check_decoder(root.at("decoder"));
  std::vector<std::string> keys = keys_by_id(*model.at("vocab").json, name + ": model.vocab");
  Added added = read_added(root.at("added_tokens"), keys);
  parts.not_special = std::move(added.not_special);
  std::sort(parts.not_special.begin(), parts.not_special.end());
  parts.specials = special_set(added.tokens, name + ": added_tokens");
  parts.tokens = bpe_tokens(keys, parts.specials, name + ": model.vocab");
  check_bytes(model, parts.tokens, parts.specials);
  parts.merges = bpe_merges(
      read_merge_list(model.at("merges")), parts.tokens, parts.specials,
      [&name](size_t i) { return fmt::format("{}: model.merges[{}]", name, i); }, "model.vocab");
  return naming(name, [&] { return Tokenizer(make_tokenizer(std::move(parts))); });
}

}  // namespace tally
