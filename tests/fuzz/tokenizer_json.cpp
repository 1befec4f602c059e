// A tokenizer.json, the byte 0xFF and some text. A file that loads is written and loads equal in every format that can
// say it; text is encoded alike at once and in chunks and decodes to itself, or to its form C where the file asks for
// that.
#include "tally/text/nfc.h"
#include "tests/fuzz/formats.h"

namespace tally::fuzz {
namespace {

constexpr std::string_view kText =
    "the cat's  low lower\n\nnewest \xC3\xA9 e\xCC\x81\xCC\xA3 \xE1\x84\x80\xE1\x85\xA1 1234 <|endoftext|><x> abab "
    "\xff";

}  // namespace
}  // namespace tally::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tally;
  using namespace tally::fuzz;
  const std::string_view whole(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(whole.find('\xff'), whole.size());
  const std::string_view text = end < whole.size() ? whole.substr(end + 1) : kText;
  const std::string normal = nfc(text);
  require(is_nfc(normal) && nfc(normal) == normal, "what is in form C is not");
  require(is_nfc(text) == (normal == text), "is_nfc is wrong");
  const fs::path file = scratch_folder() / "given.json", again = scratch_folder() / "again.tiktoken";
  put_file(file, whole.substr(0, end));
  Tokenizer tokenizer;
  if (!accepted(file.string(), [&] { tokenizer = Tokenizer::load(file); })) return 0;
  check_formats(tokenizer);
  const std::vector<int32_t> ids = check_stream(tokenizer, text);
  const std::string back = tokenizer.decode(ids);
  require(ids.empty() || back == text || nfc(back) == normal, "the ids do not decode to the text");
  if (!accepted(again.string(), [&] { tokenizer.save_as(again); })) return 0;
  const Tokenizer other = Tokenizer::load(again, {"gpt2", {}});
  require(other.vocab_size() <= tokenizer.vocab_size(), "a .tiktoken file has more tokens");
  return 0;
}
