// Indices outside their range on a card: IndexError where the host waits next, and the card works on (traps O10, O11).
#include "tally/core/device.h"
#include "tally/core/replay.h"
#include "tally/ops/creation.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/embedding.h"
#include "tally/ops/gather.h"
#include "tally/ops/indexing.h"
#include "tally/ops/scatter.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally {
namespace {

Tensor on_card(std::vector<int32_t> v, const Dims& size) { return to(Tensor::from(v, size), cuda_device()); }

template <class F>
void expect_index_error(const F& f, const std::string& text) {
  try {
    f();
    synchronize(cuda_device());
    ADD_FAILURE() << "no error; expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::kIndex);
    EXPECT_EQ(std::string(e.what()), text);
  }
  EXPECT_EQ(embedding(on_card({7}, Dims(1)), ones(Dims(8, 1), {.device = cuda_device()})).item(), 1);  // told once
}

TEST(IndexFaults, TrapO11Embedding) {
  const Tensor table = ones(Dims(8, 3), {.device = cuda_device()});
  expect_index_error(
      [&] {
        embedding(on_card({0, -1}, Dims(2)), table);
      },
      "embedding: index -1 is not one of 0 to 7 (found on cuda:0)");
  expect_index_error([&] { embedding(on_card({8}, Dims(1)), table).to_vector(); },
                     "embedding: index 8 is not one of 0 to 7 (found on cuda:0)");
}

TEST(IndexFaults, TrapO10Targets) {
  const Tensor logits = zeros(Dims(3, 5), {.device = cuda_device()});
  expect_index_error(
      [&] {
        cross_entropy(logits, on_card({1, 2, -4}, Dims(3)), -1).item();
      },
      "cross_entropy: index -4 is not one of 0 to 4 (found on cuda:0)");
}

TEST(IndexFaults, GatherAndScatter) {
  const Tensor x = ones(Dims(4, 2), {.device = cuda_device()});
  expect_index_error(
      [&] {
        gather(x, 0, on_card({4, 0}, Dims(1, 2)));
      },
      "gather: index 4 is not one of 0 to 3 (found on cuda:0)");
  for (const int64_t rows : {int64_t{1}, int64_t{600}}) {  // a short list and a long one have kernels of their own
    std::vector<int32_t> ids(static_cast<size_t>(rows), 1);
    ids.back() = -5;
    const Tensor src = ones(Dims(rows, 2), {.device = cuda_device()});
    const Tensor index = expand(view(on_card(ids, Dims(rows)), Dims(rows, 1)), Dims(rows, 2));
    const auto text = "scatter: index -5 is not one of 0 to 3 (found on cuda:0)";
    expect_index_error([&] { scatter(x, 0, index, src); }, text);
    expect_index_error([&] { scatter_add(x, 0, index, src); }, text);
  }
}

TEST(IndexFaults, ManyAtOnceAreOne) {
  const Tensor table = ones(Dims(8, 3), {.device = cuda_device()});
  const Tensor ids = on_card(std::vector<int32_t>(100000, 9), Dims(100000));
  expect_index_error(
      [&] {
        embedding(ids, table);
        embedding(ids, table);
      },
      "embedding: index 9 is not one of 0 to 7 (found on cuda:0)");
}

}  // namespace
}  // namespace tally
