// Calls a target once for each file given, and for each file of each folder given, in the order of their names; for
// builds without libFuzzer. A finding ends the program behind the name of its file.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <vector>

#include "tally/base/file.h"
#include "tests/fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(int count, char** names) {
  std::vector<fs::path> files;
  for (int i = 0; i < count; ++i) {
    if (!fs::is_directory(names[i])) {
      files.emplace_back(names[i]);
      continue;
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(names[i])) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<fs::path> files = files_of(argc - 1, argv + 1);
    for (const fs::path& file : files) {
      std::fprintf(stderr, "%s\n", file.c_str());
      const std::string text = tally::read_file(file);
      const std::vector<uint8_t> exact(text.begin(), text.end());  // so that a sanitizer sees an overrun
      LLVMFuzzerTestOneInput(exact.data(), exact.size());
    }
    std::fprintf(stderr, "%zu files\n", files.size());
    return files.empty() ? 2 : 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
