// einsum: ways to write it, refusals, random sums against a loop over indices, what is copied, costs, gradients.
#include "tally/ops/einsum.h"

#include <map>

#include "tally/ops/backward.h"
#include "tally/ops/einops.h"
#include "tally/ops/einops_test.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"
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

TEST(Einsum, WaysToWriteIt) {
  const Tensor a = arange(Dims(2, 3)), b = arange(Dims(3, 4));
  const V want = matmul(a, b).to_vector();
  for (const char* text : {"ij,jk->ik", "i j, j k -> i k", "ij,jk", " i j , j k ", "row in, in out -> row out",
                           "ij , jk->ik", "...j,jk->...k", "... j, j k -> ... k", "i...,...k->ik"}) {
    EXPECT_EQ(einsum(text, {a, b}).to_vector(), want) << text;
    EXPECT_EQ(einsum({a, b}, text).to_vector(), want) << text;
  }
  EXPECT_EQ(einsum("ab,bc->ca", {a, b}).to_vector(), transpose(matmul(a, b), 0, 1).to_vector());
  // Without an arrow: letters that occur once, in order of the alphabet, capitals first.
  EXPECT_EQ(einsum("ba", {a}).sizes(), Dims(3, 2));
  EXPECT_EQ(einsum("aB", {a}).sizes(), Dims(3, 2));
  EXPECT_EQ(einsum("...ba", {zeros(Dims(4, 2, 3))}).sizes(), Dims(4, 3, 2));
  EXPECT_EQ(einsum("ii", {zeros(Dims(3, 3))}).sizes(), Dims());
  // One word a term: names where the operands have one axis, else letters.
  const Tensor v = arange(Dims(3));
  EXPECT_EQ(einsum("hidden, hidden ->", {v, v}).item(), 5);
  EXPECT_EQ(einsum("hid,hid->hid", {v, v}).to_vector(), (V{0, 1, 4}));
  EXPECT_EQ(einsum("hid,hid->", {zeros(Dims(2, 3, 4)), zeros(Dims(2, 3, 4))}).sizes(), Dims());
  EXPECT_EQ(
      einsum(",->", {Tensor::from(std::vector<float>{2}, Dims()), Tensor::from(std::vector<float>{3}, Dims())}).item(),
      6);
}

TEST(Einsum, DocumentedByEinops) {
  EXPECT_EQ(
      einsum({zeros(Dims(128, 16, 16)), zeros(Dims(16, 16, 30))}, "batch h w, h w channel -> batch channel").sizes(),
      Dims(128, 30));
  EXPECT_EQ(einsum({zeros(Dims(10, 20)), zeros(Dims(50, 30, 20))}, "out_dim in_dim, ... in_dim -> ... out_dim").sizes(),
            Dims(50, 30, 10));
  EXPECT_EQ(einsum({zeros(Dims(10, 10))}, "i i ->").sizes(), Dims());
  const Tensor x = zeros(Dims(20, 20, 20));
  EXPECT_EQ(einsum({x, x, x}, "a b c, c b d, a g k -> a b k").sizes(), Dims(20, 20, 20));
}

TEST(Einsum, OneOperand) {
  const Tensor x = arange(Dims(2, 3)), s = arange(Dims(3, 3));
  EXPECT_TRUE(einsum("ij->ji", {x}).shares_storage(x));
  EXPECT_TRUE(einsum("ii->i", {s}).shares_storage(s));
  EXPECT_EQ(einsum("ii->i", {s}).to_vector(), (V{0, 4, 8}));
  EXPECT_EQ(einsum("ii->", {s}).item(), 12);
  EXPECT_EQ(einsum("ij->j", {x}).to_vector(), (V{3, 5, 7}));
  EXPECT_EQ(einsum("ij->", {x}).item(), 15);
  EXPECT_EQ(einsum("...i->i", {x}).to_vector(), (V{3, 5, 7}));  // the ellipsis is summed, as in PyTorch
  EXPECT_EQ(einsum("iij->ij", {arange(Dims(2, 2, 2))}).to_vector(), (V{0, 1, 6, 7}));
}

TEST(Einsum, SizesOfOneBroadcast) {
  const Tensor a = arange(Dims(2, 1)), b = arange(Dims(3, 2));
  EXPECT_EQ(einsum("ij,jk->ik", {a, b}).to_vector(), (V{0, 0, 6, 9}));  // a[i] * sum_j b[j, k]
  EXPECT_EQ(einsum("... i, ... i -> ... i", {zeros(Dims(2, 1, 4)), zeros(Dims(5, 4))}).sizes(), Dims(2, 5, 4));
  EXPECT_EQ(einsum("i,i->i", {zeros(Dims(1)), zeros(Dims(0))}).sizes(), Dims(0));
}

TEST(Einsum, Refusals) {
  const Tensor x = zeros(Dims(2, 3)), w = zeros(Dims(4, 5));
  const auto refused = [&](const std::vector<Tensor>& operands, const char* text, const std::string& part) {
    try {
      einsum(operands, text);
      ADD_FAILURE() << text << ": no error; expected " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::kValue) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refused({x, w}, "i j, j k -> i k",
          "einsum: axis 'j' has size 3 in operand 0 and 4 in operand 1 in pattern \"i j, j k -> i k\" for operands of "
          "shapes (2, 3), (4, 5)");
  refused({x, w}, "ij,jk->ik", "axis 'j' has size 3 in operand 0 and 4 in operand 1");
  refused({x}, "i j, j k -> i k", "2 terms for 1 operands");
  refused({x, x}, "ij->i", "1 terms for 2 operands");
  refused({x}, "i j k -> i", "3 axes for operand 0 of shape (2, 3)");
  refused({x}, "ijk->i", "3 axes for operand 0 of shape (2, 3)");
  refused({x}, "... i j k -> i", "at least 3 axes for operand 0");
  refused({x}, "i j -> i z", "axis 'z' of the result is in no operand");
  refused({x}, "ij->iz", "axis 'z' of the result is in no operand");
  refused({x}, "ij->ii", "axis 'i' stands twice in the result");
  refused({x}, "i j -> i i", "axis 'i' stands twice");
  refused({x}, "i i -> i", "axis 'i' stands twice in operand 0 with sizes 2 and 3");
  refused({x}, "seq hidden", "'->' is missing");
  refused({x}, "ij->i->j", "'->' stands more than once");
  refused({x}, "(i j) -> i", "composed axes in brackets are not part of einsum");
  refused({x}, "i () -> i", "axes of size 1 (1 or ()) are not part of einsum");
  refused({x}, "i 3 -> i", "numbers are not axes of einsum");
  refused({x}, "...seq hidden -> ...", "invalid axis name '...seq'");
  refused({x}, "i$->i", "unknown character '$'");
  refused({x}, "i.j->i", "dots may stand only in an ellipsis");
  refused({zeros(Dims(2, 3)), zeros(Dims(4, 3))}, "... i, ... i -> ...", "axis '...' has size 2 in operand 0 and 4");
  refused({}, "->", "einsum: takes at least one tensor");
  refused({zeros(Dims(1, 1, 1, 1, 1)), zeros(Dims(1, 1, 1, 1, 1))}, "abcde,fghij->abcdefghij", "more than 8 axes");
  expect_error([&] { einsum("i->i", {Tensor()}); }, "einsum: an input is missing");
  expect_error(
      [&] {
        einsum("i,i->", {zeros(Dims(3)), to(zeros(Dims(3)), DType::kBF16)});
      },
      "einsum: operands of f32 on meta:cpu and bf16 on meta:cpu differ");
}

// ---- random sums

struct RandomSum {
  std::string text;
  std::vector<Tensor> operands;
  std::vector<std::vector<int>> terms;
  std::vector<int> output;
  std::vector<int64_t> size;
};

RandomSum random_sum(uint64_t number) {
  Dice dice(6, number);
  RandomSum r;
  const int axes = static_cast<int>(1 + dice(6)), count = static_cast<int>(1 + dice(4));
  const bool letters = dice.chance(2);
  for (int i = 0; i < axes; ++i) r.size.push_back(dice.chance(60) ? 0 : 1 + dice(3));
  std::vector<bool> seen(static_cast<size_t>(axes), false);
  static const char* const kNames[] = {"batch", "t_1", "Hidden", "k", "z9", "out"};
  const auto shown = [&](int axis) {
    return letters ? std::string(1, "aBcdEf"[axis]) : (axis >= 0 ? std::string(kNames[axis]) + " " : "");
  };
  for (int k = 0; k < count; ++k) {
    r.terms.emplace_back();
    Dims size;
    for (int64_t n = dice(5); n > 0; --n) {
      const int axis = static_cast<int>(dice(axes));
      const bool again = std::find(r.terms.back().begin(), r.terms.back().end(), axis) != r.terms.back().end();
      if (again && !dice.chance(3)) continue;
      r.terms.back().push_back(axis);
      const bool one = !again && std::find(seen.begin(), seen.end(), true) != seen.end() && dice.chance(12);
      size[size.rank++] = one && seen[static_cast<size_t>(axis)] ? 1 : r.size[static_cast<size_t>(axis)];
      r.text += shown(axis);
      seen[static_cast<size_t>(axis)] = true;
    }
    // A repeated axis has one size.
    for (int i = 0; i < size.rank; ++i)
      for (int j = 0; j < size.rank; ++j)
        if (r.terms.back()[static_cast<size_t>(i)] == r.terms.back()[static_cast<size_t>(j)])
          size[i] = size[j] = std::max(size[i], size[j]);
    r.operands.push_back(random_layout(size, dice));
    r.text += k + 1 < count ? (letters ? "," : ", ") : "->";
  }
  for (int axis = 0; axis < axes; ++axis)
    if (seen[static_cast<size_t>(axis)] && dice.chance(2)) r.output.push_back(axis);
  dice.shuffle(r.output);
  for (const int axis : r.output) r.text += shown(axis);
  return r;
}

TEST(Einsum, RandomSumsAgreeWithALoop) {
  int large = 0;
  for (uint64_t n = 0; n < property_cases(); ++n) {
    const RandomSum r = random_sum(n);
    SCOPED_TRACE(fmt::format("case {}: \"{}\"", n, r.text));
    Dims size;
    for (const int axis : r.output) size[size.rank++] = r.size[static_cast<size_t>(axis)];
    const Dims stride = contiguous_strides(size);
    V want(static_cast<size_t>(size.numel()), 0.0);
    std::vector<int64_t> loop = r.size;
    std::vector<bool> used(loop.size(), false);
    for (const auto& term : r.terms)
      for (const int axis : term) used[static_cast<size_t>(axis)] = true;
    for (size_t i = 0; i < loop.size(); ++i)
      if (!used[i]) loop[i] = 1;
    for_all(loop, [&](const std::vector<int64_t>& index) {
      double product = 1;
      for (size_t k = 0; k < r.terms.size(); ++k) {
        int64_t at = r.operands[k].storage_offset();
        for (size_t i = 0; i < r.terms[k].size(); ++i)
          if (r.operands[k].sizes()[static_cast<int>(i)] > 1)
            at += index[static_cast<size_t>(r.terms[k][i])] * r.operands[k].strides()[static_cast<int>(i)];
        product *= static_cast<double>(r.operands[k].data<float>()[at]);
      }
      int64_t at = 0;
      for (size_t i = 0; i < r.output.size(); ++i)
        at += index[static_cast<size_t>(r.output[i])] * stride[static_cast<int>(i)];
      want[static_cast<size_t>(at)] += product;
    });
    const Tensor y = einsum(r.text, r.operands);
    ASSERT_EQ(y.sizes(), size);
    ASSERT_EQ(y.to_vector(), want);
    large += y.numel() > 8;
  }
  EXPECT_GT(large, 40);
}

// ---- what is copied, what it costs

struct Lowered {
  const char* text;
  Dims a, b;
  int64_t copies;    // launches of copy
  int64_t launches;  // in all
};

TEST(Einsum, CopiesOnlyWhereStridesForceIt) {
  const Lowered all[] = {
      {"ij,jk->ik", Dims(4, 5), Dims(5, 6), 0, 1},
      {"ij,kj->ik", Dims(4, 5), Dims(6, 5), 0, 1},
      {"ji,jk->ki", Dims(5, 4), Dims(5, 6), 0, 1},
      {"bij,bjk->bik", Dims(3, 4, 5), Dims(3, 5, 6), 0, 1},
      {"bij,bkj->bki", Dims(3, 4, 5), Dims(3, 6, 5), 0, 1},
      {"ibj,jbk->bik", Dims(4, 3, 5), Dims(5, 3, 6), 0, 1},      // batch in the middle
      {"b t h, h o -> b t o", Dims(3, 4, 5), Dims(5, 6), 0, 1},  // rows merge
      {"b t h, o h -> b t o", Dims(3, 4, 5), Dims(6, 5), 0, 1},
      {"b t h d, h d o -> b t o", Dims(2, 3, 4, 5), Dims(4, 5, 6), 0, 1},  // inner axes merge
      {"b h q d, b h k d -> b h q k", Dims(2, 3, 4, 5), Dims(2, 3, 6, 5), 0, 1},
      {"b h q k, b h k d -> b h q d", Dims(2, 3, 4, 6), Dims(2, 3, 6, 5), 0, 1},
      {"b t h, o h -> o b t", Dims(3, 4, 5), Dims(6, 5), 0, 1},
      {"o h, b h t -> b o t", Dims(6, 5), Dims(8, 5, 40), 0, 1},  // the batch of one operand alone
      {"b h t, o h -> b t o", Dims(8, 5, 40), Dims(6, 5), 0, 1},
      {"o h, b h t -> b o t", Dims(60, 50), Dims(8, 50, 2), 1, 2},  // columns too short: one copy, one product
      {"i,j->ij", Dims(4), Dims(5), 0, 1},                          // outer product
      {"ij,ij->ij", Dims(4, 5), Dims(4, 5), 0, 1},                  // element by element
      {"ij,j->ij", Dims(4, 5), Dims(5), 0, 1},
      {"b t h d, b s h d -> b h t s", Dims(2, 3, 4, 5), Dims(2, 6, 4, 5), 0, 2},  // b and h do not merge
      {"b h t s, b s h d -> b t h d", Dims(2, 4, 3, 6), Dims(2, 6, 4, 5), 0, 2},
      {"ij,j->i", Dims(4, 5), Dims(5), 0, 1},           // a row times a matrix
      {"b i, b i -> b", Dims(4, 5), Dims(4, 5), 0, 2},  // product, then sum
      {"b i j, j b i -> b", Dims(2, 3, 4), Dims(4, 2, 3), 0, 2},
      {"ij,jk->ik", Dims(4, 0), Dims(0, 6), 0, 1},
  };
  for (const Lowered& c : all) {
    Tensor a = Tensor::empty(c.a), b = Tensor::empty(c.b);
    fill_(a, 1), fill_(b, 1);
    LedgerGuard guard;
    const Tensor y = einsum(c.text, {a, b});
    int64_t copies = 0;
    for (const Ledger::Entry& e : guard.ledger().entries()) copies += std::string(e.op) == "copy" ? e.launches : 0;
    EXPECT_EQ(copies, c.copies) << c.text;
    EXPECT_EQ(guard.ledger().launches(), c.launches) << c.text;
    const EinsumCost cost = einsum_cost(c.text, {c.a, c.b});
    EXPECT_EQ(static_cast<double>(guard.ledger().cost().matmul_flops + guard.ledger().cost().other_flops), cost.flops)
        << c.text;
  }
}

TEST(Einsum, LedgerHoldsTheCostOfTheOrder) {
  // (2 x 100) (100 x 3) (3 x 50): from the left.
  const Dims a(2, 100), b(100, 3), c(3, 50);
  const EinsumCost cost = einsum_cost("a b, b c, c d -> a d", {a, b, c});
  EXPECT_EQ(cost.flops, 2 * 2 * 100 * 3 + 2 * 2 * 3 * 50);
  EXPECT_EQ(cost.largest, 100);
  ASSERT_EQ(cost.steps.size(), 2U);
  EXPECT_EQ(cost.steps[0].axes, "a b, b c -> a c");
  EXPECT_EQ(cost.steps[1].a + cost.steps[1].b, 2 + 3);
  LedgerGuard guard;
  einsum({zeros(a), zeros(b), zeros(c)}, "a b, b c, c d -> a d");
  EXPECT_EQ(guard.ledger().cost().matmul_flops, cost.flops);
  EXPECT_EQ(guard.ledger().cost().other_flops, 0);
}

// A card's library takes no matrix without a contiguous axis: what stands for one is copied there, and only there.
TEST(Einsum, MatricesForACardHaveOneContiguousAxis) {
  const auto launches = [](Device device, const char* text) {
    const Tensor x = Tensor::empty(Dims(8, 4, 2), DType::kF32, device),
                 w = Tensor::empty(Dims(4, 6), DType::kF32, device);
    LedgerGuard guard;
    einsum(text, {squeeze(slice(x, 2, 1, 2), 2), w});
    return guard.ledger().launches();
  };
  EXPECT_EQ(launches(kMetaCpu, "ij,jk->ik"), 1);
  EXPECT_EQ(launches(kMetaCuda, "ij,jk->ik"), 2);
}

TEST(Einsum, AxesOfOneOperandAreSummedFirst) {
  LedgerGuard guard;
  einsum("ijx,jk->ik", {zeros(Dims(4, 5, 7)), zeros(Dims(5, 6))});
  EXPECT_EQ(guard.ledger().cost().matmul_flops, 2 * 4 * 5 * 6);
  EXPECT_EQ(guard.ledger().cost().other_flops, 4 * 5 * 7);
}

TEST(Einsum, PlanEqualsRun) {
  for (const char* text : {"b t h d, b s h d, b s h e, h e o -> b t o", "b t h d, b s h d, s x e, x e t -> d"}) {
    const bool first = std::string(text).ends_with("o");
    const auto run = [&](Device device) {
      LedgerGuard guard;
      std::vector<Tensor> operands;
      for (const Dims& size : {Dims(2, 3, 4, 5), Dims(2, 6, 4, 5), first ? Dims(2, 6, 4, 7) : Dims(6, 2, 5),
                               first ? Dims(4, 7, 8) : Dims(2, 5, 3)}) {
        operands.push_back(Tensor::empty(size, DType::kF32, device));
        fill_(operands.back(), 1);
        operands.back().set_requires_grad();
      }
      const Tensor y = einsum(text, operands);
      backward(y, y.detach());
      return std::make_tuple(y.sizes(), y.strides(), guard.ledger().cost(), guard.ledger().launches(),
                             guard.ledger().peak_bytes(), guard.ledger().live());
    };
    EXPECT_EQ(run(kCpu), run(kMetaCpu)) << text;
  }
}

TEST(Einsum, SameBitsAsTheProduct) {
  const Tensor a = random_tensor({Dims(3, 70, 300)}, DType::kF32, 1),
               b = random_tensor({Dims(3, 300, 40)}, DType::kF32, 2);
  const V want = matmul(a, b).to_vector();
  EXPECT_EQ(einsum("bij,bjk->bik", {a, b}).to_vector(), want);
  EXPECT_EQ(transpose(einsum("bij,bjk->bki", {a, b}), 1, 2).to_vector(), want);
  EXPECT_EQ(einsum("b i j, b k j -> b i k", {a, contiguous(transpose(b, 1, 2))}).to_vector(), want);
}

TEST(Einsum, Gradients) {
  using T = const std::vector<Tensor>&;
  const auto of = [](const char* text) { return [text](T x) { return einsum(text, x); }; };
  const auto inputs = [](std::initializer_list<Dims> sizes) {
    std::vector<Input> all;
    for (const Dims& size : sizes) all.push_back({size});
    return all;
  };
  std::vector<OpCase> cases = {
      {"product", inputs({Dims(2, 3), Dims(3, 4)}), of("i j, j k -> i k")},
      {"turned", inputs({Dims(3, 2), Dims(4, 3)}), of("ji,kj->ki")},
      {"batch", inputs({Dims(2, 3, 4), Dims(2, 5, 4)}), of("b t d, b s d -> b t s")},
      {"heads", inputs({Dims(2, 3, 2, 4), Dims(2, 5, 2, 4)}), of("b t h d, b s h d -> b h t s")},
      {"weight", inputs({Dims(2, 3, 4), Dims(4, 5)}), of("... h, h o -> ... o")},
      {"lifted", inputs({Dims(2, 3), Dims(2, 3, 9)}), of("o h, b h t -> b o t")},
      {"diagonal", inputs({Dims(3, 3)}), of("i i -> i")},
      {"trace", inputs({Dims(3, 3)}), of("ii")},
      {"diagonal and product", inputs({Dims(3, 3, 2), Dims(2, 3)}), of("iij,ji->i")},
      {"outer", inputs({Dims(3), Dims(4)}), of("i,j->ji")},
      {"element-wise", inputs({Dims(3, 4), Dims(4)}), of("ij,j->ij")},
      {"dot", inputs({Dims(5), Dims(5)}), of("i,i->")},
      {"rows' dots", inputs({Dims(3, 5), Dims(3, 5)}), of("b i, b i -> b")},
      {"summed first", inputs({Dims(2, 3, 2), Dims(3, 4)}), of("ijx,jk->ik")},
      {"broadcast", inputs({Dims(2, 1), Dims(3, 4)}), of("ij,jk->ik")},
      {"three", inputs({Dims(2, 3), Dims(3, 4), Dims(4, 2)}), of("ij,jk,ki->i")},
      {"one tensor twice", inputs({Dims(3, 4)}),
       [](T x) {
         return einsum("ij,kj->ik", {x[0], x[0]});
       }},
      {"nothing to sum", inputs({Dims(2, 0), Dims(0, 3)}), of("ij,jk->ik")},
      {"no rows", inputs({Dims(0, 2), Dims(2, 3)}), of("ij,jk->ik")},
  };
  for (OpCase& c : cases) c.library_on_card = true;
  run_op_cases(cases);
}

}  // namespace
}  // namespace tally::test
