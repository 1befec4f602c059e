// Text files as documents, and the place where training ends and validation begins. Files are mapped, standard input
// goes through a file first, so the text can be walked twice without being in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tally/base/file.h"

namespace tally {

struct Input {
  std::string name;
  MappedFile file;
  std::string_view text() const { return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}; }
};

// A part of a file; `offset` is where it stands there.
struct Document {
  const Input* input = nullptr;
  size_t offset = 0;
  std::string_view text;
};

// Files, patterns and "-" in the order given. Standard input is kept in the folder `work` while it is mapped.
// Throws Error naming the input that is missing or empty.
std::vector<Input> open_inputs(const std::vector<std::string>& patterns, const fs::path& work);

// Calls f(document) for each document that is not empty, in order. An empty separator makes each file one document.
template <class F>
void for_each_document(const std::vector<Input>& inputs, const std::string& separator, const F& f) {
  for (const Input& input : inputs) {
    const std::string_view text = input.text();
    for (size_t begin = 0; begin < text.size();) {
      const size_t found = separator.empty() ? std::string_view::npos : text.find(separator, begin);
      const size_t end = std::min(found, text.size());
      if (end > begin) f(Document{&input, begin, text.substr(begin, end - begin)});
      begin = found == std::string_view::npos ? text.size() : found + separator.size();
    }
  }
}

// Where validation begins: at document `document`, `byte` bytes into it (0 but for a single document).
struct Split {
  int64_t document = 0;
  size_t byte = 0;
  int64_t total_bytes = 0;
};

// The rule stands in build.h. by_character: count characters, not bytes, in a single document. Throws Error when there
// is no text, or too little to split.
Split find_split(const std::vector<Input>& inputs, const std::string& separator, double val_fraction,
                 bool by_character);

}  // namespace tally
