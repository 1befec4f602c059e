#include <cstdlib>

#include "tests/fuzz/fuzz.h"

namespace tally::fuzz {

namespace fs = std::filesystem;

namespace {

struct Scratch {
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "tally_fuzz_XXXXXX").string();
    require(mkdtemp(pattern.data()) != nullptr, "cannot make a temporary folder like " + pattern);
    path = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

}  // namespace

const fs::path& scratch_folder() {
  static const Scratch scratch;
  return scratch.path;
}

}  // namespace tally::fuzz
