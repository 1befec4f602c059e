// Tally's side of bench/tokenizers.py: tokenizer_worker TOKENIZER (a folder or a file that Tokenizer::load reads).
// Commands beside those of tokenizer_worker.h:
//   stream FILE FROM TO          StreamEncoder at every chunk size in [FROM, TO], the file read through a buffer of one
//                                chunk, under a limit of the address space 1 MiB above what it is   {"hash", "sizes"}
//   classes                      code points of the classes that patterns ask for: [first, last, first, last...]
#include "bench/tokenizer_worker.h"

#include <sys/resource.h>

#include <memory>

#include "tally/base/parallel.h"
#include "tally/text/tokenizer.h"
#include "tally/text/unicode_tables.h"

namespace {

using namespace tally;

class TallyCoder {
 public:
  using Id = int32_t;

  explicit TallyCoder(const char* path) : tokenizer_(Tokenizer::load(path)) {}

  void encode(std::string_view text, std::vector<Id>& out) const { tokenizer_.encode_append(text, out, false); }

  std::vector<std::vector<Id>> encode_batch(const std::vector<std::string_view>& texts, int threads) const {
    set_num_threads(threads);
    std::vector<std::vector<Id>> all(texts.size());
    parallel_for(static_cast<int64_t>(texts.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        all[static_cast<size_t>(i)] = tokenizer_.encode(texts[static_cast<size_t>(i)], false);
    });
    return all;
  }

  std::string decode(const std::vector<Id>& ids) const { return tokenizer_.decode(ids); }

  std::string other(const std::vector<std::string>& words) const {
    if (words.size() == 4 && words[0] == "stream") return stream(words[1], std::stoul(words[2]), std::stoul(words[3]));
    if (words.size() == 1 && words[0] == "classes") {
      using namespace classes;
      return "{\"letter\": " + runs(kLetter) + ", \"number\": " + runs(kNumber) + ", \"space\": " + runs(kSpace) +
             ", \"upper\": " + runs(kUpper | kCaseless | kMark) + ", \"lower\": " + runs(kLower | kCaseless | kMark) +
             "}";
    }
    return {};
  }

 private:
  static std::string runs(CharClass wanted) {
    std::string text;
    bool inside = false;
    for (uint32_t point = 0; point <= kUnicodeEnd; ++point) {
      const bool in = point < kUnicodeEnd && (char_class(point) & wanted) != 0;
      if (in && !inside) text += (text.empty() ? "" : ", ") + std::to_string(point);
      if (inside && !in) text += ", " + std::to_string(point - 1);
      inside = in;
    }
    return "[" + text + "]";
  }

  // One hash when all sizes give the same ids.
  std::string stream(const std::string& path, size_t from, size_t to) const {
    std::string hash;
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
    std::vector<Id> ids;
    ids.reserve(1 << 16);
    std::string chunk;
    chunk.reserve(to);
    for (size_t size = from; size <= to; ++size) {
      std::FILE* file = std::fopen(path.c_str(), "rb");
      if (!file) throw std::runtime_error(path + ": cannot be read");
      const Limit limit(status_limit());
      StreamEncoder encoder(tokenizer_, false);
      XXH3_128bits_reset(state.get());
      const auto flush = [&] {
        XXH3_128bits_update(state.get(), ids.data(), ids.size() * sizeof(Id));
        ids.clear();
      };
      for (;;) {
        chunk.resize(size);
        chunk.resize(std::fread(chunk.data(), 1, size, file));
        if (chunk.empty()) break;
        encoder.push(chunk, ids);
        flush();
      }
      encoder.finish(ids);
      flush();
      std::fclose(file);
      const std::string found = worker::hex(XXH3_128bits_digest(state.get()));
      if (!hash.empty() && found != hash)
        throw std::runtime_error(path + ": chunks of " + std::to_string(size) + " give other ids than smaller ones");
      hash = found;
    }
    return "{\"hash\": \"" + hash + "\", \"sizes\": " + std::to_string(to - from + 1) + "}";
  }

  static rlim_t status_limit() { return static_cast<rlim_t>(worker::status_bytes("VmSize") + (1 << 20)); }

  // The most address space of this process, while it lives.
  class Limit {
   public:
    explicit Limit(rlim_t bytes) {
      getrlimit(RLIMIT_AS, &before_);
      const rlimit now{bytes, before_.rlim_max};
      if (setrlimit(RLIMIT_AS, &now) != 0) throw std::runtime_error("setrlimit failed");
    }
    ~Limit() { setrlimit(RLIMIT_AS, &before_); }

   private:
    rlimit before_{};
  };

  Tokenizer tokenizer_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: tokenizer_worker TOKENIZER\n"), 2;
  try {
    TallyCoder coder(argv[1]);
    return worker::serve(coder);
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
}
