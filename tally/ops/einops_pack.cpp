// pack and unpack: many tensors in one along an axis, and back.
#include <algorithm>

#include "tally/base/error.h"
#include "tally/base/json.h"
#include "tally/ops/einops.h"
#include "tally/ops/einops_pattern.h"
#include "tally/ops/gather.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

struct Star {
  int before = 0, after = 0;  // axes on either side of *
};

Star parse_star(const char* op, std::string_view pattern) {
  Star star;
  bool seen = false;
  std::vector<std::string_view> names;
  for (size_t i = 0; i < pattern.size();) {
    const size_t end = std::min(pattern.find(' ', i), pattern.size());
    const std::string_view word = pattern.substr(i, end - i);
    i = end + 1;
    if (word.empty()) continue;
    if (std::find(names.begin(), names.end(), word) != names.end())
      fail_value("{}: axis '{}' stands twice in pattern {}", op, printable(word), in_quotes(pattern));
    names.push_back(word);
    if (word == "*") {
      seen = true;
      continue;
    }
    if (const std::string fault = axis_name_fault(word); !fault.empty())
      fail_value("{}: invalid axis name '{}' in pattern {}: {}", op, printable(word), in_quotes(pattern), fault);
    ++(seen ? star.after : star.before);
  }
  if (!seen) fail_value("{}: no * in pattern {}", op, in_quotes(pattern));
  return star;
}

// `shape` with the axes of `middle` in place of those between star.before and the last star.after.
Dims with_middle(const Dims& shape, const Star& star, const Dims& middle) {
  Dims out;
  for (int i = 0; i < star.before; ++i) push(out, shape[i]);
  for (int i = 0; i < middle.rank; ++i) push(out, middle[i]);
  for (int i = shape.rank - star.after; i < shape.rank; ++i) push(out, shape[i]);
  return out;
}

}  // namespace

Packed pack(const std::vector<Tensor>& tensors, std::string_view pattern) {
  const Star star = parse_star("pack", pattern);
  if (tensors.empty()) fail_value("pack: takes at least one tensor");
  Packed packed;
  std::vector<Tensor> flat;
  for (const Tensor& x : tensors) {
    if (!x.defined()) fail("pack: an input is missing");
    if (x.dim() < star.before + star.after)
      fail_value("pack: tensor {} of shape {} has fewer than the {} axes of pattern {}", flat.size(), str(x.sizes()),
                 star.before + star.after, in_quotes(pattern));
    Dims middle;
    for (int i = star.before; i < x.dim() - star.after; ++i) push(middle, x.sizes()[i]);
    packed.shapes.push_back(middle);
    const Dims size = with_middle(x.sizes(), star, Dims(middle.numel()));
    if (Dims one = size; !flat.empty()) {
      one[star.before] = flat[0].sizes()[star.before];
      if (one != flat[0].sizes())
        fail_value("pack: tensor {} of shape {} and the first, {}, differ beyond * in pattern {}", flat.size(),
                   str(x.sizes()), str(tensors[0].sizes()), in_quotes(pattern));
    }
    flat.push_back(reshape(x, size));
  }
  packed.tensor = cat(flat, star.before);
  return packed;
}

std::vector<Tensor> unpack(const Tensor& x, const std::vector<Dims>& shapes, std::string_view pattern) {
  const Star star = parse_star("unpack", pattern);
  if (!x.defined()) fail("unpack: an input is missing");
  if (x.dim() != star.before + 1 + star.after)
    fail_value("unpack: a tensor of shape {} does not have the {} axes of pattern {}", str(x.sizes()),
               star.before + 1 + star.after, in_quotes(pattern));
  std::string all;
  for (const Dims& shape : shapes) all += (all.empty() ? "" : ", ") + str(shape);
  const int64_t length = x.sizes()[star.before];
  const auto refuse = [&] {
    fail_value("unpack: axis {} of {} cannot be split into [{}]", star.before, str(x.sizes()), all);
  };
  std::vector<Dims> known = shapes;
  std::vector<int64_t> lengths;
  int64_t left = length;
  int unknown = -1, unknown_axis = -1;  // the shape and its axis
  for (size_t i = 0; i < shapes.size(); ++i) {
    int64_t n = 1;
    for (int axis = 0; axis < shapes[i].rank; ++axis) {
      if (shapes[i][axis] == -1) {
        if (unknown >= 0) fail_value("unpack: more than one -1 in [{}]", all);
        unknown = static_cast<int>(i), unknown_axis = axis;
      } else if (shapes[i][axis] < 0 || __builtin_mul_overflow(n, shapes[i][axis], &n)) {
        refuse();
      }
    }
    lengths.push_back(n);
    if (unknown != static_cast<int>(i) && (left -= n) < 0) refuse();
  }
  if (unknown >= 0) {
    int64_t& n = lengths[static_cast<size_t>(unknown)];
    if (n == 0 || left % n != 0) refuse();
    known[static_cast<size_t>(unknown)][unknown_axis] = left / n;
    n = left;
  } else if (left != 0) {
    refuse();
  }
  std::vector<Tensor> parts = split(x, lengths, star.before);
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = reshape(parts[i], with_middle(x.sizes(), star, known[i]));
  return parts;
}

}  // namespace tally
