// tally data build: text files to a folder of .tok shards for training and validation.
#include "tally/data/build.h"

#include "cli/files.h"
#include "cli/verbs.h"
#include "tally/base/error.h"
#include "tally/train/report.h"

namespace tally::cli {
namespace {

struct DataBuild {
  BuildOptions options;
  std::string tokenizer, out;
  bool dry_run = false;

  static constexpr const char* kPositional = "input";
  static constexpr const char* kDetails =
      "Encodes text and writes train_*.tok, val_*.tok, data.json and the tokenizer into one folder, which appears\n"
      "complete or not at all. Each file is a document unless --separator says what stands between documents;\n"
      "the last --val-fraction of the text is for validation.";

  void fields(Fields& f) {
    f("input", options.inputs, "text files, patterns, or - for standard input");
    f("tokenizer", tokenizer, "folder of the tokenizer");
    f("out", out, "folder to write");
    f("val_fraction", options.val_fraction, "share of the text for validation, below 1", 0, 1);
    f("separator", options.separator, "text between documents of a file; empty: a file is a document");
    f("end_token", options.end_token, "special token behind each document, if the tokenizer has it; empty: none");
    f("shard_tokens", options.shard_tokens, "most tokens of a shard", 1024, 1e12);
    f("overwrite", options.overwrite, "replace a data folder that is there");
    f("dry_run", dry_run, "say what would be done and do nothing");
  }

  int run() {
    if (tokenizer.empty()) fail("no --tokenizer; name the folder of one");
    if (!(options.val_fraction < 1)) fail("--val-fraction is {}; it must be below 1", options.val_fraction);
    check_out_folder(out, options.overwrite);
    options.out = out;
    const Tokenizer t = Tokenizer::load(tokenizer);
    const std::vector<fs::path> files = expand_inputs(options.inputs);
    if (dry_run) {
      print_would_read(files);
      fmt::print("would encode with {} ({} of {} entries) and keep the last {} % for validation\nwould write {}\n",
                 tokenizer, tokenizer_kind_name(t.kind()), with_commas(t.vocab_size()), 100 * options.val_fraction,
                 out);
      return 0;
    }
    DataInfo info;
    {
      ProgressLine line("encoding");
      info = build_data(t, options, [&](int64_t done, int64_t total) { line.update(done, total); });
    }
    print_split("train", info.train);
    print_split("val", info.val);
    fmt::print("written to {}\n", out);
    return 0;
  }

 private:
  static void print_split(const char* name, const SplitInfo& s) {
    if (s.tokens == 0) return;
    fmt::print("{:5}  {} tokens, {} document{}, {} bytes ({:.2f} bytes a token), {} shard{}\n", name,
               with_commas(s.tokens), with_commas(s.documents), s.documents == 1 ? "" : "s", with_commas(s.bytes),
               static_cast<double>(s.bytes) / static_cast<double>(s.tokens), s.shards, s.shards == 1 ? "" : "s");
  }
};

}  // namespace

std::vector<Verb> data_verbs() {
  return {make_verb<DataBuild>("data build", "text to token shards for training and validation")};
}

}  // namespace tally::cli
