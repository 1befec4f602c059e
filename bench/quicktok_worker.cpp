// quicktok's side of bench/tokenizers.py: quicktok_worker DATA ENCODING (DATA: the folder data of its source).
#include <quicktok.hpp>

#include "bench/tokenizer_worker.h"

namespace {

class QuicktokCoder {
 public:
  using Id = uint32_t;

  QuicktokCoder(const char* data, const char* encoding) : tokenizer_(quicktok::Tokenizer::load_dir(data, encoding)) {}

  void encode(std::string_view text, std::vector<Id>& out) const {
    tokenizer_.encode(reinterpret_cast<const uint8_t*>(text.data()), text.size(), out);
  }
  std::vector<std::vector<Id>> encode_batch(const std::vector<std::string_view>& texts, int threads) const {
    return tokenizer_.encode_batch(texts, static_cast<unsigned>(threads));
  }
  std::string decode(const std::vector<Id>& ids) const { return tokenizer_.decode(ids); }
  std::string other(const std::vector<std::string>&) const { return {}; }

 private:
  quicktok::Tokenizer tokenizer_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: quicktok_worker DATA ENCODING\n"), 2;
  try {
    QuicktokCoder coder(argv[1], argv[2]);
    return worker::serve(coder);
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
}
