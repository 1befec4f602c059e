// tally tokenizer train | encode | decode. Token ids are text (one line, spaces between) or a file whose name says
// what it is: .npy, .tok, .u16 (or .bin), .u32, .i32.
#include <charconv>
#include <cstdio>

#include "cli/files.h"
#include "cli/verbs.h"
#include "tally/base/error.h"
#include "tally/data/tokens.h"
#include "tally/io/ids.h"
#include "tally/io/npy.h"
#include "tally/io/shard.h"
#include "tally/text/tokenizer.h"
#include "tally/train/report.h"

namespace tally::cli {
namespace {

struct TokenizerTrain {
  std::vector<std::string> input, special;
  std::string kind = "bpe", out, pattern, tie = "greatest-bytes", alphabet = "all";
  int64_t vocab_size = 0, min_frequency = 1, max_token_bytes = 0, min_count = 1;
  double max_memory = 0;
  bool overwrite = false, dry_run = false;

  static constexpr const char* kPositional = "input";
  static constexpr const char* kDetails =
      "Learns a vocabulary from text. bpe: 256 bytes, the special tokens and merges learned within the pattern's "
      "pieces;\n"
      "byte: the 256 bytes and the special tokens; char: the characters of the text and the special tokens; word: the\n"
      "special tokens, <|unk|> and the pattern's pieces, the most frequent first.\n"
      "Ties between pairs: greatest-bytes (the greater bytes, CS336), smallest-ids (ids of the vocabulary, as\n"
      "huggingface/tokenizers), smallest-byte-ids (bytes numbered by value, rustbpe), first-seen (minbpe).";

  void fields(Fields& f) {
    f("input", input, "text files, patterns, or - for standard input");
    f("kind", kind, "kind of tokenizer", {"bpe", "byte", "char", "word"});
    f("vocab_size", vocab_size, "entries in all; 0 is what it takes (char, byte, word)", 0, 1 << 24);
    f("special", special, "special tokens, such as '<|endoftext|>'");
    f("pattern", pattern,
      "how text is cut before merges: gpt2, cl100k, o200k, llama3, qwen2, ..., or regex:EXPRESSION");
    f("tie", tie, "which of equally frequent pairs comes first",
      {"greatest-bytes", "smallest-ids", "smallest-byte-ids", "first-seen"});
    f("min_frequency", min_frequency, "least count of a pair to be merged (bpe)", 1, 1e18);
    f("max_token_bytes", max_token_bytes, "longest token to make (bpe); 0: any length", 0, 1e9);
    f("alphabet", alphabet, "bytes of a bpe vocabulary: all 256, or those used in the text", {"all", "used"});
    f("min_count", min_count, "words that occur less often become <|unk|> (word)", 1, 1e18);
    f("max_memory", max_memory, "most GiB of memory for words and pairs (bpe, word); 0: no limit", 0, 1e6);
    f("out", out, "folder to write");
    f("overwrite", overwrite, "replace a tokenizer that is there");
    f("dry_run", dry_run, "say what would be done and do nothing");
  }

  int run() {
    const TokenizerSpec given = spec();
    check_out_folder(out, overwrite);
    const std::vector<fs::path> files = expand_inputs(input);
    if (dry_run) {
      print_would_read(files);
      fmt::print("would train a {} tokenizer{} with {} special tokens\nwould write {}\n", kind,
                 vocab_size > 0 ? fmt::format(" of {} entries", with_commas(vocab_size)) : "", special.size(), out);
      return 0;
    }
    const Tokenizer tokenizer = train(given, files);
    tokenizer.save(out);
    fmt::print("{} tokenizer of {} entries in {} (hash {})\n", kind, with_commas(tokenizer.vocab_size()), out,
               tokenizer.hash());
    return 0;
  }

 private:
  TokenizerSpec spec() const {
    TokenizerSpec s;
    s.kind = parse_tokenizer_kind(kind);
    s.vocab_size = vocab_size;
    s.specials = special;
    s.tie = parse_bpe_tie(tie);
    if (!pattern.empty()) s.pattern = Pattern::named(pattern);
    s.min_frequency = min_frequency, s.max_token_bytes = max_token_bytes, s.min_count = min_count;
    s.all_bytes = alphabet == "all";
    s.max_memory = static_cast<int64_t>(max_memory * (int64_t{1} << 30));
    const bool bpe = s.kind == TokenizerKind::kBpe, word = s.kind == TokenizerKind::kWord;
    if (bpe && vocab_size == 0) fail("--kind bpe needs --vocab-size");
    if (!pattern.empty() && !bpe && !word) fail("--pattern is for --kind bpe and word, not {}", kind);
    return s;
  }

  static Tokenizer train(TokenizerSpec given, const std::vector<fs::path>& files) {
    ProgressLine line("training");
    given.progress = [&line](const char* phase, int64_t done, int64_t total) {
      line.update(phase, done, total, std::string_view(phase) == "reading");
    };
    return train_tokenizer_files(given, files);
  }
};

std::string ids_text(std::span<const int32_t> ids) {
  std::string text;
  text.reserve(ids.size() * 5);
  for (const int32_t id : ids) fmt::format_to(std::back_inserter(text), "{}{}", text.empty() ? "" : " ", id);
  return text + "\n";
}

// Whole numbers between spaces, commas, line ends or brackets.
std::vector<int32_t> parse_ids(std::string_view text, const std::string& name) {
  std::vector<int32_t> ids;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    if (std::string_view(" \t\r\n,[]").find(*at) != std::string_view::npos) {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [stop, status] = std::from_chars(at, end, id);
    if (status != std::errc())
      fail("{}: what stands at offset {} is not a token id", name, static_cast<size_t>(at - text.data()));
    ids.push_back(id);
    at = stop;
  }
  return ids;
}

enum class IdFile { kText, kNpy, kTok, kRaw };

IdFile id_file_kind(const fs::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".npy") return IdFile::kNpy;
  if (extension == ".tok") return IdFile::kTok;
  if (extension == ".bin" || (extension.size() > 1 && id_type_from_name(extension.substr(1)))) return IdFile::kRaw;
  return IdFile::kText;
}

void write_ids(const fs::path& path, std::span<const int32_t> ids, const Tokenizer& tokenizer) {
  const std::string extension = path.extension().string();
  const bool narrow = tokenizer.vocab_size() <= 65536;
  switch (id_file_kind(path)) {
    case IdFile::kText:
      return write_file_atomic(path, ids_text(ids));
    case IdFile::kRaw:
      return write_raw_ids(path, ids, extension == ".bin" ? IdType::kU16 : *id_type_from_name(extension.substr(1)));
    case IdFile::kNpy: {
      std::vector<std::byte> data;
      encode_ids(ids, narrow ? IdType::kU16 : IdType::kI32, data, path.string());
      return write_npy(path, narrow ? DType::kU16 : DType::kI32, Dims(ids.size()), data.data());
    }
    case IdFile::kTok: {
      ShardWriter writer(path, tokenizer.vocab_size(),
                         tokenizer_hash_from_hex(tokenizer.hash(), "the tokenizer's hash"));
      writer.add(ids);
      writer.end_document();
      return writer.commit();
    }
  }
}

struct TokenizerEncode {
  std::string tokenizer, input, out;
  bool special = true, dry_run = false;

  static constexpr const char* kPositional = "input";
  static constexpr const char* kDetails =
      "Text to token ids: one line of numbers, or a file by the ending of --out: .npy, .tok, .u16 (.bin), .u32, .i32.";

  void fields(Fields& f) {
    f("tokenizer", tokenizer, "folder of the tokenizer");
    f("input", input, "text file, or - for standard input");
    f("out", out, "file to write; standard output when absent");
    f("special", special, "special tokens in the text become their ids");
    f("dry_run", dry_run, "say what would be done and do nothing");
  }

  int run() {
    if (tokenizer.empty()) fail("no --tokenizer; name the folder of one");
    if (input.empty()) fail("no --input; name a text file, or - for standard input");
    if (const std::string end = fs::path(out).extension().string();
        !out.empty() && !end.empty() && end != ".txt" && id_file_kind(out) == IdFile::kText)
      fail("{}: what to write is not known; end it in .txt, .npy, .tok, .u16, .u32 or .i32", out);
    const Tokenizer t = Tokenizer::load(tokenizer);
    if (dry_run) {
      print_would_read(input == "-" ? std::vector<fs::path>{"-"} : expand_inputs({input}));
      fmt::print("would write token ids to {}\n", out.empty() ? "standard output" : out);
      return 0;
    }
    const std::vector<int32_t> ids = encode(t);
    if (out.empty())
      fmt::print("{}", ids_text(ids));
    else
      write_ids(out, ids, t);
    return 0;
  }

 private:
  std::vector<int32_t> encode(const Tokenizer& t) const {
    if (input == "-") return t.encode_parallel(read_file(input), special);
    const MappedFile file(input);
    try {
      return t.encode_parallel({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, special);
    } catch (const RunError&) {
      throw;
    } catch (const Error& e) {
      fail("{}: {}", input, e.what());
    }
  }
};

// Where decoded bytes go: a file that appears complete, or standard output.
class TextSink {
 public:
  explicit TextSink(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
  }
  void write(std::string_view text) {
    if (file_) return file_->write(text);
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_run("cannot write standard output");
  }
  void commit() {
    if (file_) file_->commit();
  }

 private:
  std::optional<AtomicFile> file_;
};

struct TokenizerDecode {
  std::string tokenizer, input, out;
  bool dry_run = false;

  static constexpr const char* kPositional = "input";
  static constexpr const char* kDetails =
      "Token ids to the exact bytes they stand for. The input is numbers as text, .npy, .tok, .u16 (.bin), .u32, "
      ".i32,\n"
      "or FILE:u16 and so on for a headerless file of another name.";

  void fields(Fields& f) {
    f("tokenizer", tokenizer, "folder of the tokenizer");
    f("input", input, "file of token ids, or - for numbers on standard input");
    f("out", out, "file to write; standard output when absent");
    f("dry_run", dry_run, "say what would be done and do nothing");
  }

  int run() {
    if (tokenizer.empty()) fail("no --tokenizer; name the folder of one");
    if (input.empty()) fail("no --input; name a file of token ids, or - for standard input");
    const Tokenizer t = Tokenizer::load(tokenizer);
    const size_t colon = input.rfind(':');
    const bool typed = colon != std::string::npos && id_type_from_name(input.substr(colon + 1));
    const bool text = !typed && (input == "-" || id_file_kind(input) == IdFile::kText);
    if (dry_run) {
      const std::string file = typed ? input.substr(0, colon) : input;
      print_would_read(input == "-" ? std::vector<fs::path>{"-"} : expand_inputs({file}));
      fmt::print("would write text to {}\n", out.empty() ? "standard output" : out);
      return 0;
    }
    if (text)
      decode_text(t);
    else
      decode_file(t);
    return 0;
  }

 private:
  void decode_text(const Tokenizer& t) const {
    const std::string name = input == "-" ? "standard input" : input;
    const std::vector<int32_t> ids = parse_ids(read_file(input), name);
    TextSink sink(out);
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] < 0 || ids[i] >= t.vocab_size())
        fail("{}: token id {}, number {} of the file, is outside the vocabulary of {} tokens (0 to {})", name, ids[i],
             i + 1, t.vocab_size(), t.vocab_size() - 1);
    sink.write(t.decode(ids));
    sink.commit();
  }

  void decode_file(const Tokenizer& t) const {
    const TokenSource source = TokenSource::open(input, t.vocab_size());
    source.verify();
    source.require_tokenizer(tokenizer_hash_from_hex(t.hash(), tokenizer));
    TextSink sink(out);
    std::vector<int32_t> ids(static_cast<size_t>(std::min<int64_t>(source.size(), 1 << 20)));
    for (int64_t at = 0; at < source.size();) {
      const int64_t n = std::min<int64_t>(source.size() - at, static_cast<int64_t>(ids.size()));
      source.read(at, n, ids.data());
      sink.write(t.decode(std::span(ids).first(static_cast<size_t>(n))));
      at += n;
    }
    sink.commit();
  }
};

}  // namespace

std::vector<Verb> tokenizer_verbs() {
  return {make_verb<TokenizerTrain>("tokenizer train", "learn a vocabulary from text"),
          make_verb<TokenizerEncode>("tokenizer encode", "text to token ids"),
          make_verb<TokenizerDecode>("tokenizer decode", "token ids to text"), tokenizer_convert_verb(),
          tokenizer_info_verb()};
}

}  // namespace tally::cli
