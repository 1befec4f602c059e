#include "tests/support/support.h"

#include <cstdlib>

namespace tally::test {

namespace fs = std::filesystem;

TempFolder::TempFolder() {
  std::string pattern = (fs::temp_directory_path() / "tally_test_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) fail("cannot make a temporary folder like {}", pattern);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path shared_file(const std::string& relative) {
  const char* root = std::getenv("TALLY_SHARED");
  if (root == nullptr) return {};
  const fs::path path = fs::path(root) / "data" / relative;
  return fs::exists(path) ? path : fs::path{};
}

}  // namespace tally::test
