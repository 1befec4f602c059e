// Writing tokenizer.json for huggingface/tokenizers. Special tokens stand in the vocabulary too, as GPT-2's does: ids
// that are not in it are given out anew there, without the gaps.
#include <algorithm>

#include "tally/base/json.h"
#include "tally/text/tokenizer_files.h"
#include "tally/text/tokenizer_json.h"

namespace tally {
namespace {

const char* yes_no(bool value) { return value ? "true" : "false"; }

std::string quoted(std::string text) { return Json(std::move(text)).dump(); }

std::string byte_level(bool use_regex) {
  return fmt::format(R"({{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": {}}})",
                     yes_no(use_regex));
}

std::string pre_tokenizer(const Pattern& pattern) {
  const std::vector<std::string> splits = splits_of_pattern(pattern);
  if (splits.empty()) return byte_level(true);
  std::string out = R"({"type": "Sequence", "pretokenizers": [)";
  for (const std::string& expression : splits)
    out += fmt::format(
        R"({}    {{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}},)", "\n",
        quoted(expression));
  return out + "\n    " + byte_level(false) + "\n  ]}";
}

std::string added_tokens(const TokenizerImpl& impl) {
  std::vector<std::pair<int32_t, size_t>> order;
  for (size_t i = 0; i < impl.specials.size(); ++i) order.emplace_back(impl.specials.ids()[i], i);
  std::sort(order.begin(), order.end());
  std::string out;
  for (const auto& [id, i] : order)
    out += fmt::format(
        R"({}{{"id": {}, "content": {}, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": {}}})",
        out.empty() ? "\n    " : ",\n    ", id, quoted(impl.specials.names()[i]),
        yes_no(!std::binary_search(impl.not_special.begin(), impl.not_special.end(), id)));
  return out.empty() ? "[]" : "[" + out + "\n  ]";
}

std::string vocab(const TokenizerImpl& impl) {
  const std::vector<std::string> keys = impl.keys();
  std::string out;
  for (size_t id = 0; id < keys.size(); ++id)
    if (!keys[id].empty()) out += fmt::format("{}{}: {}", out.empty() ? "\n      " : ",\n      ", quoted(keys[id]), id);
  return "{" + out + "\n    }";
}

// Pairs as strings: no token has a space in GPT-2's characters, and every version reads them.
std::string merges(const TokenizerImpl& impl) {
  std::string out;
  for (const BpeMerge& m : impl.bpe->merges())
    out +=
        fmt::format("{}{}", out.empty() ? "\n      " : ",\n      ",
                    quoted(bytes_to_printable(impl.tokens[m.left]) + " " + bytes_to_printable(impl.tokens[m.right])));
  return out.empty() ? "[]" : "[" + out + "\n    ]";
}

}  // namespace

std::string tokenizer_json_text(const TokenizerImpl& impl) {
  if (!impl.bpe) fail("tokenizer.json is written for bpe only; this is a {} tokenizer", tokenizer_kind_name(impl.kind));
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  out += "  \"added_tokens\": " + added_tokens(impl) + ",\n";
  out += fmt::format("  \"normalizer\": {},\n", impl.nfc ? R"({"type": "NFC"})" : "null");
  out += "  \"pre_tokenizer\": " + pre_tokenizer(impl.pattern) + ",\n";
  out += "  \"post_processor\": null,\n  \"decoder\": " + byte_level(true) + ",\n";
  out += "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n";
  out += "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n";
  out += fmt::format("    \"byte_fallback\": false,\n    \"ignore_merges\": {},\n",
                     yes_no(impl.bpe->rules().ignore_merges));
  out += "    \"vocab\": " + vocab(impl) + ",\n    \"merges\": " + merges(impl) + "\n  }\n}\n";
  return out;
}

}  // namespace tally
