// rearrange, reduce, repeat, pack and unpack: what einops documents, its refusals, random patterns against a loop over
// indices, gradients, and that the plan equals the run.
#include "tally/ops/einops.h"

#include <cmath>
#include <map>

#include "tally/ops/backward.h"
#include "tally/ops/einops_test.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor arange(const Dims& size) {
  std::vector<float> v(static_cast<size_t>(size.numel()));
  std::iota(v.begin(), v.end(), 0.0f);
  return Tensor::from(v, size);
}
Tensor zeros(const Dims& size) { return Tensor::empty(size, DType::kF32, kMetaCpu); }  // shapes alone

// The examples of einops' own documentation.
TEST(Einops, DocumentedRearrange) {
  const std::vector<Tensor> images(32, zeros(Dims(30, 40, 3)));
  EXPECT_EQ(rearrange(images, "b h w c -> b h w c").sizes(), Dims(32, 30, 40, 3));
  EXPECT_EQ(rearrange(images, "b h w c -> b c h w").sizes(), Dims(32, 3, 30, 40));
  EXPECT_EQ(rearrange(images, "b h w c -> (b h) w c").sizes(), Dims(960, 40, 3));
  EXPECT_EQ(rearrange(images, "b h w c -> h (b w) c").sizes(), Dims(30, 1280, 3));
  EXPECT_EQ(rearrange(images, "b h w c -> b (c h w)").sizes(), Dims(32, 3600));
  EXPECT_EQ(rearrange(images, "b (h1 h) (w1 w) c -> (b h1 w1) h w c", {{"h1", 2}, {"w1", 2}}).sizes(),
            Dims(128, 15, 20, 3));
  EXPECT_EQ(rearrange(images, "b (h h1) (w w1) c -> b h w (c h1 w1)", {{"h1", 2}, {"w1", 2}}).sizes(),
            Dims(32, 15, 20, 12));
}

TEST(Einops, DocumentedReduce) {
  EXPECT_EQ(reduce(zeros(Dims(100, 32, 64)), "time batch channel -> batch channel", "max").sizes(), Dims(32, 64));
  const Tensor x = zeros(Dims(10, 20, 30, 40));
  EXPECT_EQ(reduce(x, "b c (h1 h2) (w1 w2) -> b c h1 w1", "max", {{"h2", 2}, {"w2", 2}}).sizes(), Dims(10, 20, 15, 20));
  EXPECT_EQ(reduce(x, "b c (h1 2) (w1 2) -> b c h1 w1", "max").sizes(), Dims(10, 20, 15, 20));
  EXPECT_EQ(reduce(x, "b c (h1 h2) (w1 w2) -> b c h1 w1", "max", {{"h1", 3}, {"w1", 4}}).sizes(), Dims(10, 20, 3, 4));
  EXPECT_EQ(reduce(x, "b c h w -> b c", "mean").sizes(), Dims(10, 20));
  EXPECT_EQ(reduce(x, "b c h w -> 1 c 1 1", "mean").sizes(), Dims(1, 20, 1, 1));
  EXPECT_EQ(reduce(x, "b c h w -> b c () ()", "mean").sizes(), Dims(10, 20, 1, 1));
  EXPECT_EQ(reduce(x, "... ->", "sum").sizes(), Dims());
  EXPECT_EQ(reduce(x, "a ... -> (a ...)", "sum").sizes(), Dims(240000));
}

TEST(Einops, DocumentedRepeat) {
  const Tensor image = zeros(Dims(30, 40));
  EXPECT_EQ(repeat(image, "h w -> h w c", {{"c", 3}}).sizes(), Dims(30, 40, 3));
  EXPECT_EQ(repeat(image, "h w -> (repeat h) w", {{"repeat", 2}}).sizes(), Dims(60, 40));
  EXPECT_EQ(repeat(image, "h w -> (h2 h) (w3 w)", {{"h2", 2}, {"w3", 3}}).sizes(), Dims(60, 120));
  EXPECT_EQ(repeat(image, "h w -> (h h2) (w w2)", {{"h2", 2}, {"w2", 2}}).sizes(), Dims(60, 80));
  EXPECT_EQ(repeat(image, "h w -> h 2 (w 3)").sizes(), Dims(30, 2, 120));
  EXPECT_EQ(repeat(std::vector<Tensor>(5, image), "b h w -> h w b 2").sizes(), Dims(30, 40, 5, 2));
  const Tensor small = Tensor::from(std::vector<float>{1, 2}, Dims(2));
  EXPECT_EQ(repeat(small, "a -> (a 2)").to_vector(), (V{1, 1, 2, 2}));
  EXPECT_EQ(repeat(small, "a -> (2 a)").to_vector(), (V{1, 2, 1, 2}));
  EXPECT_EQ(repeat(small, "a -> a none", {{"none", 0}}).sizes(), Dims(2, 0));
}

TEST(Einops, DocumentedPack) {
  const Packed p = pack({zeros(Dims(2, 3, 5)), zeros(Dims(2, 3, 7, 5)), zeros(Dims(2, 3, 7, 9, 5))}, "i j * k");
  EXPECT_EQ(p.tensor.sizes(), Dims(2, 3, 71, 5));
  EXPECT_EQ(p.shapes, (std::vector<Dims>{Dims(), Dims(7), Dims(7, 9)}));
  const std::vector<Tensor> back = unpack(p.tensor, p.shapes, "i j * k");
  ASSERT_EQ(back.size(), 3U);
  EXPECT_EQ(back[0].sizes(), Dims(2, 3, 5));
  EXPECT_EQ(back[1].sizes(), Dims(2, 3, 7, 5));
  EXPECT_EQ(back[2].sizes(), Dims(2, 3, 7, 9, 5));
}

TEST(Einops, PackKeepsValues) {
  const Tensor a = arange(Dims(2, 3)), b = arange(Dims(2, 2, 2)), c = arange(Dims(2));
  const Packed p = pack({a, b, c}, "n *");
  EXPECT_EQ(p.tensor.to_vector(), (V{0, 1, 2, 0, 1, 2, 3, 0, 3, 4, 5, 4, 5, 6, 7, 1}));
  const std::vector<Tensor> back = unpack(p.tensor, {Dims(3), Dims(2, -1), Dims()}, "n *");
  EXPECT_EQ(back[0].to_vector(), a.to_vector());
  EXPECT_EQ(back[1].to_vector(), b.to_vector());
  EXPECT_EQ(back[2].to_vector(), c.to_vector());
  EXPECT_EQ(back[1].sizes(), b.sizes());
  EXPECT_TRUE(back[0].shares_storage(p.tensor));
  EXPECT_EQ(unpack(p.tensor, {Dims(0), Dims(8), Dims(0)}, "n *")[2].sizes(), Dims(2, 0));
}

TEST(Einops, ViewsWhereStridesAllow) {
  const Tensor x = arange(Dims(2, 6, 8));
  const Tensor heads = rearrange(x, "b t (h d) -> b h t d", {{"h", 2}});
  EXPECT_TRUE(heads.shares_storage(x));
  EXPECT_EQ(heads.strides(), Dims(48, 4, 8, 1));
  EXPECT_TRUE(rearrange(heads, "b h t d -> b t (h d)").shares_storage(x));
  EXPECT_TRUE(rearrange(x, "b t d -> (b t) d").shares_storage(x));
  EXPECT_TRUE(rearrange(x, "b t d -> d 1 (b t) ()").shares_storage(x));
  EXPECT_TRUE(repeat(x, "b t d -> b 5 t d").shares_storage(x));
  EXPECT_EQ(repeat(x, "b t d -> b 5 t d").strides(), Dims(48, 0, 8, 1));
  EXPECT_FALSE(rearrange(x, "b t d -> b (d t)").shares_storage(x));
  EXPECT_FALSE(repeat(x, "b t d -> b (t 2) d").shares_storage(x));
  LedgerGuard guard;
  const Tensor same = rearrange(x, "b t (h d) -> b t (h d)", {{"h", 4}});
  EXPECT_EQ(same.strides(), x.strides());
  EXPECT_EQ(guard.ledger().launches() + guard.ledger().live_bytes(), 0);
}

TEST(Einops, Refusals) {
  const Tensor x = zeros(Dims(4, 6));
  const auto refused = [&](const std::function<void()>& f, const std::string& part) {
    try {
      f();
      ADD_FAILURE() << "no error; expected " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::kValue) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refused([&] { rearrange(x, "a b -> a"); },
          "rearrange: axes only on one side: {b} in pattern \"a b -> a\" for a tensor of shape (4, 6)");
  refused([&] { rearrange(x, "a b -> a b c"); }, "axes only on one side: {c}");
  refused([&] { rearrange(x, "a ... -> a"); }, "axes only on one side: {...}");
  refused([&] { rearrange(x, "a b -> a b ..."); }, "an ellipsis on the right side, but not on the left");
  refused([&] { rearrange(x, "(a ...) -> a ..."); }, "an ellipsis within brackets is not allowed on the left side");
  refused([&] { rearrange(x, "a 6 -> a 6"); }, "numbers other than 1 are not axes of rearrange");
  refused([&] { rearrange(x, "a b c -> a b c"); }, "the pattern has 3 axes, the tensor 2");
  refused([&] { rearrange(x, "a b c ... -> a b c ..."); }, "the pattern has at least 3 axes, the tensor 2");
  refused([&] { rearrange(x, "a (b c) -> a b c"); }, "sizes of {b, c} cannot be inferred");
  refused([&] { rearrange(x, "a (b c) -> a b c", {{"b", 4}}); }, "axis 1 of size 6 cannot be divided into parts of 4");
  refused([&] { rearrange(x, "a (b c) -> a b c", {{"b", 2}, {"c", 4}}); }, "axis 1 has size 6, the pattern's is 8");
  refused([&] { rearrange(x, "a b -> a b", {{"a", 3}}); }, "axis 0 has size 4, the pattern's is 3");
  refused([&] { rearrange(x, "a b -> a b", {{"c", 2}}); }, "a size for axis 'c', which is not in the pattern");
  refused([&] { rearrange(x, "a b -> a b", {{"2c", 2}}); }, "a size for '2c', which is no axis name");
  refused([&] { rearrange(x, "a (b c) -> a b c", {{"b", 0}}); }, "cannot be divided into parts of 0");
  refused([&] { rearrange(x, "a (b c) -> a b c", {{"b", -2}}); }, "axis 'b' cannot have the size -2");
  refused([&] { rearrange(x, "a (b c) -> a b c", {{"b", 2}, {"b", 2}}); }, "the size of axis 'b' is given twice");
  refused([&] { rearrange(x, "() b -> b"); }, "axis 0 has size 4, the pattern's is 1");
  refused([&] { rearrange(x, "a b"); }, "'->' is missing");
  refused([&] { rearrange(x, "a b -> b -> a"); }, "'->' stands more than once");
  refused([&] { rearrange(x, "a (b -> a b"); }, "brackets are not balanced");
  refused([&] { rearrange(x, "a a -> a"); }, "axis 'a' stands twice on one side");
  refused([&] { rearrange(x, "a b -> a b () () () () () () ()"); }, "more than 8 axes");
  refused(
      [&] {
        rearrange(x, "a (b c d e f g h i) -> a b c d e f g h i",
                  {{"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}, {"g", 1}, {"h", 1}, {"i", 1}});
      },
      "more than 8 axes");
  refused([&] { reduce(x, "a b -> a c", "sum"); }, "reduce: axes only on the right side: {c}");
  refused([&] { reduce(x, "a b -> a 2", "sum"); }, "axes only on the right side: {2}");
  refused([&] { reduce(x, "a b -> a", "median"); },
          "unknown reduction \"median\"; use one of sum, mean, max, min, prod, any, all");
  refused([&] { repeat(x, "a b -> a"); }, "repeat: axes only on the left side: {b}");
  refused([&] { repeat(x, "a b -> a b c"); }, "give the size of the new axis 'c'");
  refused([&] { repeat(x, "a b -> a b c", {{"c", int64_t{1} << 61}}); }, "too many elements");
  refused(
      [&] {
        rearrange(std::vector<Tensor>{x, zeros(Dims(4, 5))}, "n a b -> a n b");
      },
      "tensors of a list have one shape, not (4, 6) and (4, 5)");
  expect_error([] { rearrange(std::vector<Tensor>{}, "n -> n"); }, "takes at least one tensor");
  expect_error([] { rearrange(Tensor(), "n -> n"); }, "rearrange: an input is missing");
}

TEST(Einops, PackRefusals) {
  const Tensor x = zeros(Dims(2, 6));
  expect_error([&] { pack({x}, "a b"); }, "pack: no * in pattern \"a b\"");
  expect_error([&] { pack({x}, "a * *"); }, "axis '*' stands twice");
  expect_error([&] { pack({x}, "a _b *"); }, "invalid axis name '_b'");
  expect_error([&] { pack({x}, "a b c *"); }, "tensor 0 of shape (2, 6) has fewer than the 3 axes");
  expect_error([&] { pack({x, zeros(Dims(3, 6))}, "a *"); }, "tensor 1 of shape (3, 6) and the first, (2, 6), differ");
  expect_error([&] { pack({}, "a *"); }, "pack: takes at least one tensor");
  expect_error([&] { unpack(x, {Dims(6)}, "a b *"); }, "unpack: a tensor of shape (2, 6) does not have the 3 axes");
  expect_error([&] { unpack(x, {Dims(4), Dims(3)}, "a *"); }, "axis 1 of (2, 6) cannot be split into [(4,), (3,)]");
  expect_error([&] { unpack(x, {Dims(4)}, "a *"); }, "cannot be split");
  expect_error([&] { unpack(x, {Dims(-1), Dims(-1)}, "a *"); }, "more than one -1");
  expect_error([&] { unpack(x, {Dims(4, -1)}, "a *"); }, "cannot be split");
  expect_error([&] { unpack(x, {Dims(0, -1)}, "a *"); }, "cannot be split");
  expect_error([&] { unpack(x, {}, "a *"); }, "cannot be split");
}

// ---- random patterns

// A pattern made up from its parts, and what it means by a loop over indices.
struct RandomPattern {
  std::string text;
  AxisSizes given;
  Tensor x;
  Dims result;
  std::vector<std::string> names;
  std::vector<int64_t> size;                  // of all axes
  std::vector<std::vector<int>> left, right;  // groups
  std::vector<int> reduced;

  static int64_t place(const std::vector<std::vector<int>>& groups, const std::vector<int64_t>& sizes,
                       const std::vector<int64_t>& index, const Dims& stride) {
    int64_t at = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      int64_t i = 0;
      for (const int id : groups[g]) i = i * sizes[static_cast<size_t>(id)] + index[static_cast<size_t>(id)];
      at += i * stride[static_cast<int>(g)];
    }
    return at;
  }
};

// Axes in order cut into groups, with axes of size 1 in between.
std::vector<std::vector<int>> grouped(const std::vector<int>& axes, Dice& dice) {
  std::vector<std::vector<int>> groups;
  size_t after = axes.size();  // axes still to come
  for (const int id : axes) {
    --after;
    if (!groups.empty() && !groups.back().empty() && dice.chance(3))
      groups.back().push_back(id);
    else
      groups.push_back({id});
    if (groups.size() + after < kMaxRank && dice.chance(8)) groups.emplace_back();
  }
  return groups;
}

std::string text_of(const RandomPattern& p, const std::vector<std::vector<int>>& groups, const std::vector<int>& dots,
                    Dice& dice) {
  std::string s;
  bool dotted = false;
  for (const auto& group : groups) {
    const auto under = [&](int id) { return std::find(dots.begin(), dots.end(), id) != dots.end(); };
    const bool brackets = group.size() > 1 || (group.empty() && dice.chance(2));
    std::string inside;
    for (const int id : group) {
      if (under(id) && dotted) continue;
      inside += (inside.empty() ? "" : " ") + (under(id) ? "..." : p.names[static_cast<size_t>(id)]);
      dotted = dotted || under(id);
    }
    if (!group.empty() && inside.empty()) continue;
    s += brackets ? "(" + inside + ") " : group.empty() ? "1 " : inside + " ";
  }
  return s;
}

enum class What { kRearrange, kReduce, kRepeat };

RandomPattern random_pattern(What what, uint64_t number) {
  Dice dice(5, number * 3 + static_cast<uint64_t>(what));
  RandomPattern p;
  static const char* const kNames[] = {"b", "heads", "t2", "Channel", "w_x", "i", "long_name_of_an_axis", "z"};
  const int count = static_cast<int>(dice(6));
  std::vector<int> axes(static_cast<size_t>(count));
  std::iota(axes.begin(), axes.end(), 0);
  for (int i = 0; i < count; ++i) {
    p.names.emplace_back(kNames[i]);
    p.size.push_back(dice.chance(40) ? 0 : 1 + dice(4));
  }
  p.left = grouped(axes, dice);
  std::vector<int> order = axes;
  dice.shuffle(order);
  if (what == What::kReduce) {
    for (size_t i = 0; i < order.size();) {
      if (dice.chance(2)) {
        p.reduced.push_back(order[i]);
        order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }
  for (int fresh = 0; what == What::kRepeat && fresh < 2; ++fresh) {
    const int id = static_cast<int>(p.names.size());
    const bool number_alone = dice.chance(2);
    p.size.push_back(number_alone ? 2 + dice(2) : 1 + dice(3));
    p.names.push_back(number_alone ? std::to_string(p.size.back()) : fresh ? "new1" : "new2");
    order.insert(order.begin() + dice(static_cast<int64_t>(order.size()) + 1), id);
  }
  p.right = grouped(order, dice);
  // An ellipsis for a run of axes that stand alone and in order on both sides, or for no axes.
  std::vector<int> dots;
  for (size_t g = 0; g < p.left.size() && dice.chance(2); ++g)
    if (p.left[g].size() == 1) {
      dots.push_back(p.left[g][0]);
      const auto at = std::find(p.right.begin(), p.right.end(), p.left[g]);
      if (g + 1 < p.left.size() && p.left[g + 1].size() == 1 && p.right.end() - at > 1 && at[1] == p.left[g + 1])
        dots.push_back(p.left[g + 1][0]);
      break;
    }
  const std::string nothing = dots.empty() && dice.chance(4) ? "..." : "";
  p.text = text_of(p, p.left, dots, dice) + nothing + "->" + nothing + " " + text_of(p, p.right, dots, dice);
  Dims shape;
  for (const auto& group : p.left) {
    int64_t n = 1;
    for (const int id : group) n *= p.size[static_cast<size_t>(id)];
    shape[shape.rank++] = n;
    // All sizes of a group but one must be given; the last one as well where zeros leave it open.
    const bool all = n == 0 || dice.chance(4);
    for (size_t i = 0; i < group.size() && group.size() > 1; ++i)
      if (i + 1 < group.size() || all) p.given.emplace_back(kNames[group[i]], p.size[static_cast<size_t>(group[i])]);
  }
  for (size_t id = static_cast<size_t>(count); id < p.names.size(); ++id)
    if (p.names[id][0] == 'n') p.given.emplace_back(p.names[id] == "new1" ? "new1" : "new2", p.size[id]);
  for (const auto& group : p.right) {
    int64_t n = 1;
    for (const int id : group) n *= p.size[static_cast<size_t>(id)];
    p.result[p.result.rank++] = n;
  }
  p.x = random_layout(shape, dice);
  return p;
}

// The value at every place of the result: `join` takes what was there and one more element of x.
V slow(const RandomPattern& p, double start, const std::function<double(double, double)>& join) {
  V out(static_cast<size_t>(p.result.numel()), start);
  const Dims to = contiguous_strides(p.result);
  const float* from = p.x.data<float>();
  for_all(p.size, [&](const std::vector<int64_t>& index) {
    double& y = out[static_cast<size_t>(RandomPattern::place(p.right, p.size, index, to))];
    y = join(y, from[RandomPattern::place(p.left, p.size, index, p.x.strides())]);
  });
  return out;
}

// Whether the places of x that the result shows are a sum over its axes of index times stride: a view exists.
bool view_exists(const RandomPattern& p) {
  std::vector<int64_t> at(static_cast<size_t>(p.result.numel()));
  const Dims to = contiguous_strides(p.result);
  for_all(p.size, [&](const std::vector<int64_t>& index) {
    at[static_cast<size_t>(RandomPattern::place(p.right, p.size, index, to))] =
        RandomPattern::place(p.left, p.size, index, p.x.strides());
  });
  for (size_t k = 0; k < at.size(); ++k) {
    int64_t rest = static_cast<int64_t>(k), sum = 0;
    for (int axis = 0; axis < p.result.rank; ++axis) {
      sum += rest / to[axis] * (p.result[axis] > 1 ? at[static_cast<size_t>(to[axis])] : 0);
      rest %= to[axis];
    }
    if (sum != at[k]) return false;
  }
  return true;
}

TEST(Einops, RandomPatternsAgreeWithALoop) {
  int views = 0, copies = 0;
  for (uint64_t n = 0; n < property_cases(); ++n) {
    for (const What what : {What::kRearrange, What::kRepeat}) {
      const RandomPattern p = random_pattern(what, n);
      SCOPED_TRACE(fmt::format("case {}: \"{}\" of {}", n, p.text, str(p.x.sizes())));
      const Tensor y = what == What::kRepeat ? repeat(p.x, p.text, p.given) : rearrange(p.x, p.text, p.given);
      ASSERT_EQ(y.sizes(), p.result);
      ASSERT_EQ(y.to_vector(), slow(p, 0, [](double, double x) { return x; }));
      if (y.numel() == 0) continue;
      ASSERT_EQ(y.shares_storage(p.x), view_exists(p));
      ++(y.shares_storage(p.x) ? views : copies);
    }
    const RandomPattern p = random_pattern(What::kReduce, n);
    SCOPED_TRACE(fmt::format("case {}: reduce \"{}\" of {}", n, p.text, str(p.x.sizes())));
    const Tensor y = reduce(p.x, p.text, "sum", p.given);
    ASSERT_EQ(y.sizes(), p.result);
    ASSERT_EQ(y.to_vector(), slow(p, 0, [](double a, double b) { return a + b; }));
    if (p.x.numel() == 0) continue;
    ASSERT_EQ(reduce(p.x, p.text, "max", p.given).to_vector(),
              slow(p, -INFINITY, [](double a, double b) { return std::max(a, b); }));
    ASSERT_EQ(reduce(p.x, p.text, "min", p.given).to_vector(),
              slow(p, INFINITY, [](double a, double b) { return std::min(a, b); }));
    ASSERT_EQ(reduce(p.x, p.text, "prod", p.given).to_vector(), slow(p, 1, [](double a, double b) { return a * b; }));
    if (!p.reduced.empty()) {  // else the tensor stays as it is
      ASSERT_EQ(reduce(p.x, p.text, "any", p.given).to_vector(),
                slow(p, 0, [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }));
      ASSERT_EQ(reduce(p.x, p.text, "all", p.given).to_vector(),
                slow(p, 1, [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }));
    }
    const double share = 1.0 / (static_cast<double>(p.x.numel()) / static_cast<double>(y.numel()));
    const V means = reduce(p.x, p.text, "mean", p.given).to_vector(), sums = y.to_vector();
    for (size_t i = 0; i < means.size(); ++i) ASSERT_NEAR(means[i], sums[i] * share, 1e-6);
  }
  EXPECT_GT(views, 200);
  EXPECT_GT(copies, 200);
}

TEST(Einops, ReducesByAFunction) {
  const Tensor x = arange(Dims(2, 3, 4));
  const auto both = [](const Tensor& t, const Dims& axes) { return add(sum(t, axes), max(t, axes)); };
  EXPECT_EQ(reduce(x, "a b c -> b", both).to_vector(), (V{60 + 15, 92 + 19, 124 + 23}));
}

TEST(Einops, Gradients) {
  using T = const std::vector<Tensor>&;
  const auto one = [](Dims size) { return std::vector<Input>{{size}}; };
  run_op_cases({
      {"heads", one({2, 3, 8}),
       [](T x) {
         return rearrange(x[0], "b t (h d) -> b h t d", {{"h", 2}});
       }},
      {"a copy", one({2, 3, 4}), [](T x) { return rearrange(x[0], "a b c -> (c a) b"); }},
      {"ones", one({2, 1, 4}), [](T x) { return rearrange(x[0], "a 1 c -> () c 1 a"); }},
      {"nothing moved", one({2, 4}), [](T x) { return affine(rearrange(x[0], "a b -> a b"), 2, 0); }},
      {"scalar", one({}), [](T x) { return rearrange(x[0], "-> 1 1"); }},
      {"empty", one({0, 4}),
       [](T x) {
         return rearrange(x[0], "a (b c) -> b a c", {{"b", 2}});
       }},
      {"repeat", one({2, 3}), [](T x) { return repeat(x[0], "a b -> b 2 a"); }},
      {"repeat, a copy", one({2, 3}), [](T x) { return repeat(x[0], "a b -> (b 2) (3 a)"); }},
      {"repeat none", one({2, 3}),
       [](T x) {
         return repeat(x[0], "a b -> a n b", {{"n", 0}});
       }},
      {"reduce sum", one({4, 3, 2}), [](T x) { return reduce(x[0], "(a 2) b c -> c a", "sum"); }},
      {"reduce mean", one({4, 3, 2}), [](T x) { return reduce(x[0], "(2 a) b c -> (c b)", "mean"); }},
      {"reduce max", one({4, 3, 2}), [](T x) { return reduce(x[0], "a ... -> ... 1", "max"); }},
      {"reduce min", one({4, 3, 2}), [](T x) { return reduce(x[0], "a b ... -> b", "min"); }},
      {"reduce prod", one({4, 3, 2}), [](T x) { return reduce(x[0], "a b c -> c a", "prod"); }},
      {"list", {{Dims(2, 3)}, {Dims(2, 3)}}, [](T x) { return rearrange(x, "n a b -> a (n b)"); }},
      {"pack", {{Dims(2, 3)}, {Dims(2, 2, 2)}, {Dims(2)}}, [](T x) { return pack(x, "n *").tensor; }},
      {"unpack", one({2, 7}),
       [](T x) {
         const std::vector<Tensor> y = unpack(x[0], {Dims(2, 2), Dims(), Dims(2)}, "n *");
         return pack({y[2], square(y[0]), y[1]}, "n *").tensor;
       }},
  });
}

TEST(Einops, GradientsOfLeavesHaveMemoryOfTheirOwn) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Tensor w = to(arange(Dims(2, 3)), dtype);
    w = w.detach().set_requires_grad();
    const Tensor g = to(arange(Dims(3, 2)), dtype);
    for (int round = 1; round <= 2; ++round) {
      backward(rearrange(w, "a b -> b a"), g);
      EXPECT_EQ(w.grad().category(), Category::kGradient);
      EXPECT_EQ(w.grad().dtype(), DType::kF32);
      EXPECT_TRUE(w.grad().is_contiguous());
      EXPECT_FALSE(w.grad().shares_storage(g));
      EXPECT_EQ(w.grad().to_vector(), (V{0, 2.0 * round, 4.0 * round, 1.0 * round, 3.0 * round, 5.0 * round}));
    }
  }
}

TEST(Einops, PlanEqualsRun) {
  const auto run = [](Device device) {
    LedgerGuard guard;
    Tensor x = Tensor::empty(Dims(4, 6, 8), DType::kF32, device);
    fill_(x, 1);
    x.set_requires_grad();
    const Tensor y = rearrange(x, "b t (h d) -> (b h) (d t)", {{"h", 2}});
    const Tensor z = reduce(repeat(y, "n (d t) -> n t 3 d", {{"t", 6}}), "n ... d -> d n", "mean");
    backward(z, z);
    return std::make_tuple(z.sizes(), guard.ledger().cost(), guard.ledger().launches(), guard.ledger().peak_bytes(),
                           guard.ledger().live());
  };
  EXPECT_EQ(run(kCpu), run(kMetaCpu));
}

TEST(Einops, AnyDtype) {
  const Tensor counts = Tensor::from(std::vector<int32_t>{0, 1, 2, 3}, Dims(2, 2));
  EXPECT_EQ(reduce(counts, "a b -> b", "sum").to_vector(), (V{2, 4}));
  EXPECT_EQ(reduce(counts, "a b -> b", "all").to_vector(), (V{0, 1}));
  EXPECT_EQ(reduce(counts, "a b -> a", "any").dtype(), DType::kBool);
  const Tensor x = Tensor::from(std::vector<int32_t>{0, 1, 2, 3, 4, 5}, Dims(2, 3));
  EXPECT_EQ(rearrange(x, "a b -> (b a)").to_vector(), (V{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(repeat(x, "a b -> a (b 2)").dtype(), DType::kI32);
}

}  // namespace
}  // namespace tally::test
