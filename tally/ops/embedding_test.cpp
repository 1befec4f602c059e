#include "tally/ops/embedding.h"

#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

const bool embedding_reference = register_reference<EmbeddingArgs>([](const EmbeddingArgs& a, auto& io) {
  auto ids = io.index(a.ids);
  auto table = io.in(a.table);
  auto& y = io.out(a.out);
  for (int64_t i = 0; i < a.out.size[0]; ++i)
    for (int64_t j = 0; j < a.out.size[1]; ++j) y(i, j) = table(static_cast<int64_t>(ids(i)), j);
});

const bool embedding_backward_reference =
    register_reference<EmbeddingBackwardArgs>([](const EmbeddingBackwardArgs& a, auto& io) {
      using N = NumberOf<decltype(io)>;
      auto ids = io.index(a.ids);
      auto grad = io.in(a.grad);
      auto& dtable = io.inout(a.dtable);
      for (int64_t k = 0; !a.add && k < a.dtable.numel(); ++k) dtable.flat(k) = N(0.0);
      for (int64_t i = 0; i < a.grad.size[0]; ++i)
        for (int64_t j = 0; j < a.grad.size[1]; ++j) dtable(static_cast<int64_t>(ids(i)), j) += grad(i, j);
    });

TEST(Embedding, Cases) {
  for (const Dims& ids : {Dims(), Dims(1), Dims(5), Dims(2, 7), Dims(2, 1, 3), Dims(0)})
    for (const Dims& table : {Dims(1, 1), Dims(3, 5), Dims(11, 16), Dims(40, 33), Dims(2, 1030), Dims(4, 0)})
      run_op_case({"embedding " + str(ids) + " of " + str(table),
                   {{ids, Input::kIndex, table[0]}, {table}},
                   [](const auto& x) { return embedding(x[0], x[1]); }});
  run_op_case({"embedding with long sums", {{Dims(600), Input::kIndex, 3}, {Dims(3, 4)}}, [](const auto& x) {
                 return embedding(x[0], x[1]);
               }});
}

// Used twice, as a tied table is: the second gradient is added in place, rows without an id stay.
TEST(Embedding, SharedTable) {
  run_op_case({"embedding twice",
               {{Dims(6), Input::kIndex, 4}, {Dims(6), Input::kIndex, 9}, {Dims(9, 18)}},
               [](const auto& x) { return add(embedding(x[0], x[2]), embedding(x[1], x[2])); }});
}

// A bf16 table is summed in f32: 1000 times 1 is 1000, not the 256 at which bf16 stops counting.
TEST(Embedding, SumsOfBf16AreRoundedOnce) {
  Tensor table = Tensor::empty(Dims(2, 3), DType::kBF16);
  fill_(table, 0);
  table.set_requires_grad();
  Tensor ids = Tensor::empty(Dims(1000), DType::kI64);
  fill_(ids, 1);
  Tensor ones = Tensor::empty(Dims(1000, 3), DType::kBF16);
  fill_(ones, 1);
  backward(embedding(ids, table), ones);
  EXPECT_EQ(table.grad().to_vector(), (std::vector<double>{0, 0, 0, 1000, 1000, 1000}));
}

// Trap O11: a negative id is an error, never row V - 1.
TEST(Embedding, TrapO11IdsOutside) {
  const Tensor table = Tensor::empty(Dims(8, 2));
  expect_error(
      [&] {
        embedding(Tensor::from(std::vector<int32_t>{0, -1}, Dims(2)), table);
      },
      "embedding: id -1 at position 1 is not one of the 8 rows of the table");
  expect_error([&] { embedding(Tensor::from(std::vector<int32_t>{8}, Dims(1)), table); },
               "embedding: id 8 at position 0 is not one of the 8 rows of the table");
}

TEST(Embedding, IdsChangedBeforeTheBackwardAreRefused) {
  Tensor table = random_tensor({Dims(4, 2)}, DType::kF32, 1).set_requires_grad();
  const Tensor ids = Tensor::from(std::vector<int32_t>{0, 2}, Dims(2));
  const Tensor y = embedding(ids, table);
  ids.data<int32_t>()[0] = -7;
  expect_error([&] { backward(y, Tensor::empty(Dims(2, 2))); }, "embedding: id -7 at position 0");
}

TEST(Embedding, Errors) {
  const Tensor ids = Tensor::from(std::vector<int32_t>{0}, Dims(1));
  expect_error([&] { embedding(ids, Tensor::empty(Dims(3))); }, "embedding: takes a table of shape (V, d), not (3,)");
  expect_error([&] { embedding(Tensor::empty(Dims(2)), Tensor::empty(Dims(3, 2))); }, "embedding: indices are i32");
  const Tensor deep = Tensor::empty(Dims(1, 1, 1, 1, 1, 1, 1, 1), DType::kI32);
  expect_error([&] { embedding(deep, Tensor::empty(Dims(3, 2))); }, "too many axes");
}

}  // namespace
}  // namespace tally::test
