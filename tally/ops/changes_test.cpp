// Changes in place of memory that several tensors show: gradients by central differences, histories, what is refused.
#include "tally/ops/changes.h"

#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/indexing.h"
#include "tally/ops/op_test.h"
#include "tally/ops/operators.h"
#include "tally/ops/reduce.h"
#include "tally/ops/scatter.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor doubles(const V& v) { return Tensor::from(v, Dims(static_cast<int64_t>(v.size()))); }

// x is (3, 4), w is (4,); the result has any shape.
struct Program {
  const char* name;
  Tensor (*run)(const Tensor& x, const Tensor& w);
};

const Program kPrograms[] = {
    {"y[:, 1] *= 3",
     [](const Tensor& x, const Tensor&) {
       const Tensor y = x * 2;
       mul_(select(y, 1, 1), 3);
       return y;
     }},
    {"y[0] *= w",
     [](const Tensor& x, const Tensor& w) {
       const Tensor y = square(x);
       mul_(select(y, 0, 0), w);
       return y * y;
     }},
    {"y.view(-1).add_(3 y)",
     [](const Tensor& x, const Tensor&) {
       const Tensor y = x * 2;
       Tensor flat = view(y, Dims(-1));
       add_(flat, flat * 3);
       return y * y;
     }},
    {"the view and the whole are both used",
     [](const Tensor& x, const Tensor& w) {
       const Tensor y = sin(x);
       Tensor row = select(y, 0, 1);
       mul_(row, w);
       return y * row;
     }},
    {"a chain of views, changed at its end",
     [](const Tensor& x, const Tensor& w) {
       const Tensor y = sin(x), rows = slice(y, 0, 1, 3);
       Tensor columns = slice(transpose(rows, 0, 1), 0, 0, 4, 2);
       mul_(columns, unsqueeze(slice(w, 0, 0, 2), 1));
       return y * 3 + sum(rows * rows, Dims(0)) * sum(columns);
     }},
    {"another view, made before, meets the changed one in part",
     [](const Tensor& x, const Tensor& w) {
       const Tensor y = sin(x), left = slice(y, 1, 0, 3);
       Tensor right = slice(y, 1, 2, 4);
       mul_(right, slice(w, 0, 0, 2));
       return sum(left * left) + sum(right) * y;
     }},
    {"two views change one after the other",
     [](const Tensor& x, const Tensor& w) {
       const Tensor y = sin(x);
       Tensor row = select(y, 0, 1), column = select(y, 1, 2);
       mul_(row, w);
       add_(column, sum(row));
       mul_(row, w);
       return y * row;
     }},
    {"the whole changes below a view",
     [](const Tensor& x, const Tensor& w) {
       Tensor y = sin(x);
       const Tensor row = select(y, 0, 1), copy = y;
       mul_(y, w);
       add_(y, 1);
       return row * row + sum(copy * copy);
     }},
    {"a constant whole takes the history of its part",
     [](const Tensor& x, const Tensor& w) {
       const Tensor y = x.detach() * 1;
       mul_(select(y, 0, 2), w);
       return y * y;
     }},
    {"values are put over a part",
     [](const Tensor& x, const Tensor& w) {
       const Tensor y = sin(x);
       Tensor row = select(y, 0, 2), other = slice(y, 0, 0, 2);
       assign_(row, w);
       fill_(select(other, 1, 1), 0.5);
       return y * y + sum(other);
     }},
    {"an index expression and scatter_add on a view",
     [](const Tensor& x, const Tensor& w) {
       const Tensor y = sin(x);
       Tensor rows = slice(y, 0, 0, 2), row = select(y, 0, 2);
       index_put_(rows, {1, Slice(0, 4, 2)}, slice(w, 0, 0, 2));
       scatter_add_(row, 0, to(Tensor::from(std::vector<int32_t>{3, 3, 0, 1}, Dims(4)), DType::kI64), w);
       return y * y;
     }},
    {"windows that overlap",
     [](const Tensor& x, const Tensor& w) {
       const Tensor y = sin(x), windows = unfold(y, 1, 2, 1), again = expand(unsqueeze(y, 0), Dims(2, 3, 4));
       mul_(select(y, 1, 1), 3);
       mul_(select(y, 0, 0), w);
       return sum(windows * windows) + sum(again * again, Dims(0));
     }},
    {"a detached alias has a history of its own",
     [](const Tensor& x, const Tensor& w) {
       const Tensor y = sin(x), apart = y.detach() * 1;
       Tensor alias = apart.detach();
       mul_(alias, w);
       return y * y + alias;
     }},
};

double total(const Program& p, const Tensor& x, const Tensor& w) {
  const Tensor y = p.run(x, w);
  const Tensor weights = random_tensor({y.sizes()}, DType::kF64, 9);
  return sum(y * weights).item();
}

TEST(Changes, GradientsAreThoseOfTheProgram) {
  for (const Program& p : kPrograms) {
    const Tensor x = random_tensor({Dims(3, 4)}, DType::kF64, 3), w = random_tensor({Dims(4)}, DType::kF64, 4);
    Tensor rx = x.detach() * 1, rw = w.detach() * 1;
    rx.set_requires_grad(), rw.set_requires_grad();
    const Tensor y = p.run(rx, rw);
    backward(y, random_tensor({y.sizes()}, DType::kF64, 9));
    const NoGrad quiet;
    for (const auto& [leaf, values] : {std::pair{rx, x}, std::pair{rw, w}}) {
      const V got = leaf.grad().defined() ? leaf.grad().to_vector() : V(static_cast<size_t>(leaf.numel()));
      if (std::string_view(p.name).starts_with("a constant") && leaf.shares_storage(rx))
        continue;                                                        // cut off on purpose
      if (std::string_view(p.name).starts_with("a detached")) continue;  // below
      for (int64_t i = 0; i < values.numel(); ++i) {
        double* const at = values.data<double>() + i;
        const double old = *at, h = 1e-6;
        *at = old + h;
        const double high = total(p, x, w);
        *at = old - h;
        const double low = total(p, x, w);
        *at = old;
        EXPECT_NEAR(got[static_cast<size_t>(i)], (high - low) / (2 * h), 2e-7) << p.name << " element " << i;
      }
    }
  }
}

TEST(Changes, ADetachedTensorIsAnotherFamily) {
  Tensor x = doubles({1, 2}), w = doubles({3, 4});
  x.set_requires_grad(), w.set_requires_grad();
  const Tensor y = x * 1;
  Tensor alias = y.detach();
  const Tensor part = slice(alias, 0, 0, 1);
  mul_(alias, w);
  EXPECT_TRUE(part.requires_grad());  // of the alias
  backward(y, doubles({1, 1}));       // y's own history has no w
  EXPECT_FALSE(w.grad().defined());
  EXPECT_EQ(x.grad().to_vector(), (V{1, 1}));
  backward(part, doubles({1}));
  EXPECT_EQ(w.grad().to_vector(), (V{1, 0}));
}

TEST(Changes, AllThatShowTheMemoryRequireAGradient) {
  Tensor w = doubles({2});
  w.set_requires_grad();
  const Tensor x = doubles({1, 2, 3, 4}), low = slice(x, 0, 0, 2), high = slice(x, 0, 2, 4), far = x.detach();
  mul_(slice(x, 0, 1, 2), w);
  EXPECT_TRUE(x.requires_grad() && low.requires_grad());
  EXPECT_FALSE(x.is_leaf());
  EXPECT_FALSE(high.requires_grad() || far.requires_grad());
  EXPECT_EQ(far.to_vector(), (V{1, 4, 3, 4}));
}

TEST(Changes, LeavesAndTheirViewsAreRefused) {
  Tensor x = doubles({1, 2, 3, 4});
  x.set_requires_grad();
  Tensor part = slice(x, 0, 0, 2), further = view(part, Dims(2, 1));
  expect_error([&] { mul_(part, 2); }, "mul_: a view of a leaf tensor that requires grad is being used in an in-place");
  expect_error([&] { fill_(further, 2); }, "fill_: a view of a leaf tensor that requires grad");
  expect_error([&] { index_put_(further, {0}, 2.0); }, "index_put_: a view of a leaf tensor that requires grad");
  EXPECT_EQ(x.to_vector(), (V{1, 2, 3, 4}));
  {
    const NoGrad quiet;
    mul_(part, 2);
  }
  EXPECT_EQ(x.to_vector(), (V{2, 4, 3, 4}));
  EXPECT_TRUE(x.is_leaf());
  Tensor y = x * 1;
  mul_(y, 2);  // of no leaf
  EXPECT_EQ(y.to_vector(), (V{4, 8, 6, 8}));
}

TEST(Changes, AViewMadeWithoutGradientsIsRefused) {
  Tensor w = doubles({2}), leaf = doubles({1, 2});
  w.set_requires_grad(), leaf.set_requires_grad();
  for (const Tensor& base : {Tensor(leaf), leaf * 1}) {
    Tensor part;
    {
      const NoGrad quiet;
      part = slice(base, 0, 0, 1);
    }
    expect_error([&] { mul_(part, w); }, "a view was created in no_grad mode and is being modified inplace");
    mul_(part, 1);  // nothing to record
    EXPECT_EQ(base.to_vector(), (V{1, 2}));
  }
}

TEST(Changes, OfNothingIsNoOverlap) {
  Tensor none = expand(Tensor::empty(Dims(0)), Dims(2, 0));
  index_put_(none, {0}, 1.0);  // strides of 0 between no elements
  EXPECT_EQ(none.numel(), 0);
}

TEST(Changes, SavedValuesThatChangedAreCaught) {
  Tensor x = doubles({1, 2});
  x.set_requires_grad();
  const Tensor y = x * 1, z = square(y);
  mul_(slice(y, 0, 0, 1), 2);
  expect_error([&] { backward(z, doubles({1, 1})); }, "modified by an inplace operation");
}

TEST(Changes, RetainedGradientsAreOfTheNewValues) {
  Tensor x = doubles({1, 2});
  x.set_requires_grad();
  Tensor y = x * 3;
  y.retain_grad();
  mul_(slice(y, 0, 0, 1), 5);
  backward(y * 2, doubles({1, 1}));
  EXPECT_EQ(y.grad().to_vector(), (V{2, 2}));
  EXPECT_EQ(x.grad().to_vector(), (V{30, 6}));
}

// A long loop over rows, its graph freed without recursion or leak: live bytes are those before.
TEST(Changes, NothingIsKeptOfAGraphThatIsGone) {
  const LedgerGuard guard;
  Tensor x = random_tensor({Dims(50, 3)}, DType::kF64, 3);
  x.set_requires_grad();
  const int64_t before = guard.ledger().live_bytes();
  for (const bool run : {false, true}) {
    {
      const Tensor y = x * 1;
      for (int i = 0; i < 50; ++i) {
        Tensor row = select(y, 0, i);
        add_(row, square(select(y, 0, (i + 7) % 50)));  // keeps y's memory alive by a saved tensor
      }
      EXPECT_EQ(y.requires_grad() && run, run);
    }
    EXPECT_EQ(guard.ledger().live_bytes(), before);
    EXPECT_EQ(tally::total(guard.ledger().saved()), 0);
  }
}

TEST(Changes, MetaIsThePlan) {
  const auto run = [](Device device) {
    const LedgerGuard guard;
    Tensor x = Tensor::empty(Dims(3, 4), DType::kF32, device), w = Tensor::empty(Dims(4), DType::kF32, device);
    fill_(x, 2), fill_(w, 3);
    x.set_requires_grad(), w.set_requires_grad();
    for (const Program& p : kPrograms) {
      if (std::string_view(p.name).starts_with("an index")) continue;  // its ids are on the CPU
      const Tensor y = p.run(x, w);
      Tensor g = Tensor::empty(y.sizes(), DType::kF32, device);
      fill_(g, 1);
      backward(y, g);
    }
    const Cost c = guard.ledger().cost();
    return std::vector<int64_t>{c.other_flops, c.bytes_read, c.bytes_written, guard.ledger().peak_bytes()};
  };
  EXPECT_EQ(run(kCpu), run(kMetaCpu));
}

}  // namespace
}  // namespace tally::test
