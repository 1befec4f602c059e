// Which algorithm each product takes, kept between runs: a text file, a line a product. It is a cache: a line that is
// damaged counts as absent, a file that cannot be read as empty, one that cannot be written is left alone. Written
// whole, to a temporary that is renamed, on top of what other processes have put there since; of two processes that
// keep different algorithms for one product at the same moment one wins.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tally/base/file.h"

namespace tally {

class MatmulChoices {
 public:
  using Algorithm = std::array<uint64_t, 8>;  // the library's own form (cublasLtMatmulAlgo_t); means nothing elsewhere
  static constexpr size_t kMost = 4096;       // products in a file; the oldest go first

  explicit MatmulChoices(fs::path file);  // reads it
  const fs::path& file() const { return file_; }

  std::optional<Algorithm> find(std::span<const int64_t> key) const;
  // Stores the algorithm; one that another process has stored for the product meanwhile is replaced.
  void keep(std::span<const int64_t> key, const Algorithm& algorithm);

 private:
  struct Line {
    std::string key;
    Algorithm algorithm;
  };
  static std::optional<Line> parsed(std::string_view text);
  void read();
  fs::path file_;
  std::vector<Line> lines_;  // oldest first
};

// cache_folder()/matmul-CARD-VERSION.txt, where an algorithm of this card and library version is kept.
fs::path matmul_choices_path(const std::string& card, uint64_t library_version);

// False where TALLY_MATMUL_SEARCH=0: every product then takes what the library proposes first, and the file is neither
// read nor written.
bool matmul_search_wanted();

}  // namespace tally
