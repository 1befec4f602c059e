// Finding documents is a plain search for the separator in mapped text, cheap enough to be done twice.
#include "tally/data/documents.h"

#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "tally/base/error.h"
#include "tally/text/utf8.h"

namespace tally {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

// Standard input through a file of the work folder, so that it can be mapped and read twice like any other.
Input spool_stdin(const fs::path& work) {
  const fs::path path = work / "stdin.txt";
  {
    AtomicFile file(path);
    std::vector<char> buffer(kChunkBytes);
    for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), stdin)) > 0;) file.write(buffer.data(), n);
    if (std::ferror(stdin) != 0) fail("standard input: cannot be read");
    file.commit();
  }
  Input input{"standard input", MappedFile(path)};
  std::error_code ignored;
  fs::remove(path, ignored);  // the map stays
  return input;
}

// The fraction of n that is for training; the small number mends 0.2 * 10 = 1.9999... of 1 - 0.8.
size_t train_part(size_t n, double val_fraction) {
  return std::min(n, static_cast<size_t>(std::floor(static_cast<double>(n) * (1.0 - val_fraction) + 1e-6)));
}

size_t split_characters(std::string_view text, double val_fraction) {
  size_t characters = 0, at = 0;
  while (at < text.size()) at += utf8_next(text.data() + at, text.size() - at).length, ++characters;
  const size_t wanted = train_part(characters, val_fraction);
  at = 0;
  for (size_t i = 0; i < wanted; ++i) at += utf8_next(text.data() + at, text.size() - at).length;
  return at;
}

size_t split_bytes(std::string_view text, double val_fraction) {
  size_t at = train_part(text.size(), val_fraction);
  // At most three continuation bytes belong to a character; more are broken text, which may be cut anywhere.
  for (int i = 0; i < 3 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; ++i) ++at;
  return at;
}

}  // namespace

std::vector<Input> open_inputs(const std::vector<std::string>& patterns, const fs::path& work) {
  if (patterns.empty()) fail("no input: name text files, patterns or - for standard input");
  std::vector<Input> inputs;
  bool stdin_taken = false;
  for (const std::string& pattern : patterns) {
    if (pattern != "-") {
      for (const fs::path& path : glob_files(pattern)) inputs.push_back({path.string(), MappedFile(path)});
    } else if (!std::exchange(stdin_taken, true)) {
      inputs.push_back(spool_stdin(work));
    }
  }
  for (const Input& input : inputs)
    if (input.text().empty()) fail("{}: is empty; it must hold text", input.name);
  return inputs;
}

Split find_split(const std::vector<Input>& inputs, const std::string& separator, double val_fraction,
                 bool by_character) {
  int64_t documents = 0, total = 0;
  std::optional<Document> first;
  for_each_document(inputs, separator, [&](const Document& d) {
    if (!first) first = d;
    ++documents, total += static_cast<int64_t>(d.text.size());
  });
  if (documents == 0) fail("{}: holds separators only; it must hold text", inputs.front().name);
  if (val_fraction == 0) return {documents, 0, total};
  if (documents == 1) {
    const size_t at =
        by_character ? split_characters(first->text, val_fraction) : split_bytes(first->text, val_fraction);
    if (at == 0 || at == first->text.size())
      fail("{}: its {} bytes are too few to keep {} of them for validation", first->input->name, first->text.size(),
           val_fraction);
    return {0, at, total};
  }
  const double wanted = static_cast<double>(total) * (1.0 - val_fraction);
  Split split{1, 0, total};
  int64_t index = 0, before = 0;
  double best = INFINITY;
  for_each_document(inputs, separator, [&](const Document& d) {
    const double distance = std::abs(static_cast<double>(before) - wanted);
    if (index > 0 && distance < best) best = distance, split.document = index;  // the border in front of d
    ++index, before += static_cast<int64_t>(d.text.size());
  });
  return split;
}

}  // namespace tally
