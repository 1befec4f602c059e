#include "tally/ops/einsum_path.h"

#include <algorithm>
#include <bit>

namespace tally {

namespace {

class Sizes {
 public:
  explicit Sizes(const std::vector<int64_t>& sizes) : sizes_(sizes) {}
  double elements(AxisMask mask) const {
    double n = 1;
    for (; mask != 0; mask &= mask - 1) n *= static_cast<double>(sizes_[static_cast<size_t>(std::countr_zero(mask))]);
    return n;
  }
  // Of contracting a and b where `keep` is needed afterwards.
  double flops(AxisMask a, AxisMask b, AxisMask keep) const {
    return elements(a | b) * (((a | b) & ~keep) != 0 ? 2 : 1);
  }

 private:
  const std::vector<int64_t>& sizes_;
};

struct Term {
  AxisMask axes;
  int id;
};

void take_step(EinsumPath& path, const Term& a, const Term& b, AxisMask result, const Sizes& sizes) {
  const double flops = sizes.flops(a.axes, b.axes, result);
  path.steps.push_back({a.id, b.id, result, flops});
  path.flops += flops;
  path.largest = std::max(path.largest, sizes.elements(result));
}

// The best way to contract a set of terms (a bit a term) into one.
struct Best {
  double flops = 0, between = 0;  // between: elements of all results on the way
  AxisMask axes = 0;              // that are left
  uint32_t first = 0;             // one of the two sets it is made from
};

int emit(EinsumPath& path, const std::vector<Best>& best, const std::vector<Term>& terms, uint32_t set, int& next,
         const Sizes& sizes) {
  if (std::has_single_bit(set)) return terms[static_cast<size_t>(std::countr_zero(set))].id;
  const uint32_t left = best[set].first, right = set & ~left;
  const int a = emit(path, best, terms, left, next, sizes), b = emit(path, best, terms, right, next, sizes);
  take_step(path, {best[left].axes, a}, {best[right].axes, b}, best[set].axes, sizes);
  return next++;
}

// All splits of all subsets, smaller sets first (a set's number is larger than those of its parts).
void exact(EinsumPath& path, const std::vector<Term>& terms, AxisMask output, int next, const Sizes& sizes) {
  const auto n = static_cast<uint32_t>(terms.size());
  const uint32_t all = (1U << n) - 1;
  std::vector<AxisMask> inside(all + 1, 0);  // axes that occur in a set
  for (uint32_t set = 1; set <= all; ++set) {
    const auto low = static_cast<size_t>(std::countr_zero(set));
    inside[set] = inside[set & (set - 1)] | terms[low].axes;
  }
  std::vector<Best> best(all + 1);
  for (uint32_t set = 1; set <= all; ++set) {
    Best& b = best[set];
    if (std::has_single_bit(set)) {
      b.axes = inside[set];
      continue;
    }
    b.axes = inside[set] & (output | inside[all & ~set]);
    const double elements = sizes.elements(b.axes);
    const uint32_t lowest = set & (~set + 1);
    // `left` holds the lowest term, so that no split is looked at twice.
    for (uint32_t left = (set - 1) & set; left != 0; left = (left - 1) & set) {
      if ((left & lowest) == 0) continue;
      const Best &l = best[left], &r = best[set & ~left];
      const double flops = l.flops + r.flops + sizes.flops(l.axes, r.axes, b.axes);
      const double between = l.between + r.between + elements;
      if (b.first == 0 || flops < b.flops || (flops == b.flops && between < b.between)) {
        b.first = left, b.flops = flops, b.between = between;
      }
    }
  }
  emit(path, best, terms, all, next, sizes);
}

// The pair whose contraction adds the fewest elements to what is in memory; pairs that share an axis come first, then
// among equals what costs least.
Term contract_greedily(EinsumPath& path, std::vector<Term>& terms, AxisMask output, int next, const Sizes& sizes) {
  size_t best_i = 0, best_j = 1;
  bool best_shares = false;
  double best_growth = 0, best_flops = 0;
  AxisMask best_axes = 0;
  for (size_t i = 0; i < terms.size(); ++i)
    for (size_t j = i + 1; j < terms.size(); ++j) {
      AxisMask others = output;
      for (size_t k = 0; k < terms.size(); ++k)
        if (k != i && k != j) others |= terms[k].axes;
      const AxisMask a = terms[i].axes, b = terms[j].axes, axes = (a | b) & others;
      const bool shares = (a & b) != 0;
      const double growth = sizes.elements(axes) - sizes.elements(a) - sizes.elements(b);
      const double flops = sizes.flops(a, b, axes);
      const bool first = i == 0 && j == 1;
      if (first || (shares && !best_shares) ||
          (shares == best_shares && (growth < best_growth || (growth == best_growth && flops < best_flops)))) {
        best_i = i, best_j = j, best_shares = shares, best_growth = growth, best_flops = flops, best_axes = axes;
      }
    }
  const Term made{best_axes, next};
  take_step(path, terms[best_i], terms[best_j], best_axes, sizes);
  terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(best_j));
  terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(best_i));
  return made;
}

}  // namespace

EinsumPath einsum_path(const std::vector<AxisMask>& operands, AxisMask output, const std::vector<int64_t>& sizes) {
  EinsumPath path;
  std::vector<Term> terms;
  for (const AxisMask axes : operands) terms.push_back({axes, static_cast<int>(terms.size())});
  const Sizes of(sizes);
  int next = static_cast<int>(terms.size());
  for (; terms.size() > kExactOperands; ++next) terms.push_back(contract_greedily(path, terms, output, next, of));
  if (terms.size() > 1) exact(path, terms, output, next, of);
  return path;
}

}  // namespace tally
