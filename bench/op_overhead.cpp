// What a call costs beside its kernel: chains of 1,000 adds of scalars with and without autograd, and einsums of two
// operands beside the product that one writes by hand.
//   op_overhead [threads] [rounds]        a JSON line for each chain and pattern
// Chains take turns, a round each; the two programs of a pattern, call by call. `ns`, `seconds` and `by_hand` are
// medians, `fastest` the least. Results are compared before anything is timed.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <vector>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/base/rng.h"
#include "tally/core/tape.h"
#include "tally/ops/allclose.h"
#include "tally/ops/backward.h"
#include "tally/ops/einsum.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"
#include "tally/ops/view.h"

namespace {

using namespace tally;
using Clock = std::chrono::steady_clock;

constexpr int kAdds = 1000;
constexpr double kLeastSeconds = 0.01;  // of a round of a program: as many calls as fill it

double seconds_of(const std::function<void()>& f) {
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t calls_for(const std::function<void()>& f) {
  const double once = std::min(seconds_of(f), seconds_of(f));
  return std::max<int64_t>(1, static_cast<int64_t>(kLeastSeconds / (once + 1e-9)));
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}
double least(const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }

// ---- chains of adds

struct Chain {
  const char* name;
  std::function<void()> run;  // kAdds ops
};

Tensor scalar(float value) { return Tensor::from(std::vector<float>{value}, Dims()); }

template <class Add>
Tensor chain_from(const Tensor& a, const Add& add_one) {
  Tensor x = a;
  for (int i = 0; i < kAdds; ++i) x = add_one(x);
  return x;
}

template <class Add>
void forward_backward(double want, const Add& add_one) {
  const Tensor a = scalar(1).set_requires_grad();
  backward(chain_from(a, [&](const Tensor& x) { return add_one(x, a); }));
  if (a.grad().item() != want) fail("the gradient of the chain is {}, not {}", a.grad().item(), want);
}

template <class Add>
void forward(double want, const Add& add_one) {
  const Tensor a = scalar(1);
  const Tensor y = chain_from(a, [&](const Tensor& x) { return add_one(x, a); });
  if (y.item() != want) fail("the chain gives {}, not {}", y.item(), want);
}

std::vector<Chain> chains() {
  const auto tensors = [](const Tensor& x, const Tensor& a) { return add(x, a); };
  const auto number = [](const Tensor& x, const Tensor&) { return add(x, 1.0); };
  return {{"x + a, forward and backward", [=] { forward_backward(kAdds + 1, tensors); }},
          {"x + 1, forward and backward", [=] { forward_backward(1, number); }},
          {"x + a without autograd", [=] { forward(kAdds + 1, tensors); }},
          {"x + 1 without autograd", [=] { forward(kAdds + 1, number); }}};
}

void measure_chains(int rounds) {
  const std::vector<Chain> all = chains();
  const int64_t turns = rounds * calls_for(all[0].run);
  std::vector<std::vector<double>> times(all.size());
  for (int64_t turn = 0; turn < turns; ++turn)
    for (size_t i = 0; i < all.size(); ++i) times[i].push_back(seconds_of(all[i].run) * 1e9 / kAdds);
  for (size_t i = 0; i < all.size(); ++i)
    fmt::print(R"({{"contest": "overhead", "chain": "{}", "ops": {}, "ns": {:.1f}, "fastest": {:.1f}}})"
               "\n",
               all[i].name, kAdds, median(times[i]), least(times[i]));
  std::fflush(stdout);
}

// ---- einsum beside the product by hand; each pattern is 512^3 multiply-adds

struct Pattern {
  const char* text;
  Dims a, b;
  Tensor (*by_hand)(const Tensor& a, const Tensor& b);
};

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> all = {
      {"ij,jk->ik", Dims(512, 512), Dims(512, 512), [](const Tensor& a, const Tensor& b) { return matmul(a, b); }},
      {"ji,jk->ik", Dims(512, 512), Dims(512, 512), [](const Tensor& a, const Tensor& b) { return matmul(t(a), b); }},
      {"bij,bjk->bik", Dims(16, 128, 256), Dims(16, 256, 256),
       [](const Tensor& a, const Tensor& b) { return matmul(a, b); }},
      {"bthd,bshd->bhts", Dims(4, 256, 8, 64), Dims(4, 256, 8, 64),
       [](const Tensor& a, const Tensor& b) {
         return matmul(transpose(a, 1, 2), transpose(transpose(b, 1, 2), 2, 3));
       }},
      {"bhts,bshd->bthd", Dims(4, 8, 256, 256), Dims(4, 256, 8, 64),
       [](const Tensor& a, const Tensor& b) { return transpose(matmul(a, transpose(b, 1, 2)), 1, 2); }},
      {"btd,hdk->bhtk", Dims(4, 128, 512), Dims(8, 512, 64),
       [](const Tensor& a, const Tensor& b) { return matmul(unsqueeze(a, 1), b); }}};
  return all;
}

Tensor random_tensor(const Dims& size, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(size.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = uniform_from_u32(random_u32(seed, 0, i)) - 0.5f;
  return Tensor::from(values, size);
}

void measure_pattern(const Pattern& p, int threads, int rounds) {
  const Tensor a = random_tensor(p.a, 1), b = random_tensor(p.b, 2);
  Tensor y, want;
  const std::function<void()> ours = [&] { y = einsum({a, b}, p.text); };
  const std::function<void()> by_hand = [&] { want = p.by_hand(a, b); };
  ours(), by_hand();
  if (!allclose(y, want, 1e-4, 1e-4)) fail("einsum {} is not the product by hand", p.text);
  const int64_t pairs = rounds * calls_for(by_hand);
  std::vector<double> times[2];
  for (int64_t pair = 0; pair < pairs; ++pair)
    for (const int64_t i : {pair % 2, 1 - pair % 2}) times[i].push_back(seconds_of(i == 0 ? ours : by_hand));
  fmt::print(R"({{"contest": "einsum", "pattern": "{}", "threads": {}, "seconds": {:.9f}, "by_hand": {:.9f}, )"
             R"("fastest": {:.9f}, "fastest_by_hand": {:.9f}, "ratio": {:.4f}}})"
             "\n",
             p.text, threads, median(times[0]), median(times[1]), least(times[0]), least(times[1]),
             median(times[0]) / median(times[1]));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2, rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  if (argc > 3 || threads < 1 || rounds < 1) {
    fmt::print(stderr, "usage: op_overhead [threads] [rounds]\n");
    return 2;
  }
  try {
    set_num_threads(threads);
    measure_chains(rounds);
    const NoGrad quiet;
    for (const Pattern& p : patterns()) measure_pattern(p, threads, rounds);
  } catch (const std::exception& e) {
    fmt::print(stderr, "op_overhead: error: {}\n", e.what());
    return 1;
  }
  return 0;
}
