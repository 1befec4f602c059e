// Live bytes by category over a stretch of work, launch by launch: what a ledger writes while it is told to.
// A moment is the time from one launch to the next and holds the state with the most bytes in between, so that the
// highest moment is the ledger's peak. Long stretches are thinned by joining neighbours (the higher state stays).
#pragma once

#include <string>
#include <vector>

#include "tally/core/ledger.h"

namespace tally {

class Timeline {
 public:
  struct Moment {
    int64_t launches = 0;
    double seconds = 0;  // predicted; 0 without a hardware model
    CategoryBytes live{};
  };
  struct Span {  // launches of one phase in a row
    std::string phase;
    int64_t launches = 0;
    double seconds = 0;
  };

  // Keeps between `most` / 2 and `most` moments of a long stretch, and at most as many spans.
  explicit Timeline(const CategoryBytes& live, size_t most = 512) : most_(most), highest_(live) {}

  void charge(const CategoryBytes& live);  // after each change
  void launch(const std::string& phase, double seconds, const CategoryBytes& live);
  void finish();  // what was charged after the last launch belongs to it

  const std::vector<Moment>& moments() const { return moments_; }
  const std::vector<Span>& spans() const { return spans_; }

  // {unit: "seconds" or "launches", edges: [0, ...], bytes: {parameter: [...]}, phases: [{phase, from, to}]}; edges are
  // one more than the values of a category, and categories without bytes are left out.
  Json to_json() const;

 private:
  size_t most_;
  CategoryBytes highest_;  // since the last launch
  std::vector<Moment> moments_;
  std::vector<Span> spans_;
};

}  // namespace tally
