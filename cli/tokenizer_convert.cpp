// tally tokenizer convert IN OUT: a tokenizer in another format.
#include "cli/files.h"
#include "cli/verbs.h"
#include "tally/base/error.h"
#include "tally/text/tokenizer.h"
#include "tally/train/report.h"

namespace tally::cli {
namespace {

struct TokenizerConvert {
  std::vector<std::string> files, special;
  std::string pattern, to = "name";
  bool overwrite = false, dry_run = false;

  static constexpr const char* kPositional = "files";
  static constexpr const char* kDetails =
      "tally tokenizer convert IN OUT reads a tokenizer and writes it in another format: what the name of OUT says\n"
      "(*.tiktoken, *.json for huggingface/tokenizers, else a folder), or --to. IN is a folder, a .tiktoken file, "
      "which\n"
      "needs --pattern and --special unless its name is tiktoken's (cl100k_base.tiktoken), or a tokenizer.json.";

  void fields(Fields& f) {
    f("files", files, "the tokenizer to read, and what to write");
    f("pattern", pattern,
      "of a .tiktoken file: gpt2, cl100k, o200k, llama3, qwen2, ..., or tiktoken's name of an encoding");
    f("special", special, "special tokens of a .tiktoken file: NAME for the next id, or NAME=ID");
    f("to", to, "format to write", {"name", "folder", "gpt2", "tiktoken", "json"});
    f("overwrite", overwrite, "replace what is there");
    f("dry_run", dry_run, "say what would be done and do nothing");
  }

  int run() {
    if (files.size() != 2) fail("name two: the tokenizer to read, and what to write");
    const fs::path out = files[1];
    const TokenizerFormat format = this->format();
    if (writes_folder(format)) {
      check_out_folder(files[1], overwrite);
    } else if (!overwrite && fs::exists(out)) {
      fail("{}: is there already; name another file, or give --overwrite", files[1]);
    }
    const Tokenizer tokenizer = Tokenizer::load(files[0], {pattern, special});
    if (dry_run) {
      fmt::print("would write the tokenizer of {} to {}\n", files[0], files[1]);
      return 0;
    }
    tokenizer.save_as(out, format);
    fmt::print("{} tokenizer of {} entries in {} (hash {})\n", tokenizer_kind_name(tokenizer.kind()),
               with_commas(tokenizer.vocab_size()), files[1], tokenizer.hash());
    return 0;
  }

 private:
  TokenizerFormat format() const {
    if (to == "folder") return TokenizerFormat::kFolder;
    if (to == "gpt2") return TokenizerFormat::kGpt2;
    if (to == "tiktoken") return TokenizerFormat::kTiktoken;
    return to == "json" ? TokenizerFormat::kJson : tokenizer_format_of(files[1]);
  }
  static bool writes_folder(TokenizerFormat format) {
    return format == TokenizerFormat::kFolder || format == TokenizerFormat::kGpt2;
  }
};

}  // namespace

Verb tokenizer_convert_verb() {
  return make_verb<TokenizerConvert>("tokenizer convert", "write a tokenizer in another format");
}

}  // namespace tally::cli
