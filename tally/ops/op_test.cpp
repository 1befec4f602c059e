#include "tally/ops/op_test.h"

#include <chrono>
#include <cstdlib>
#include <limits>

#include "tally/base/parallel.h"
#include "tally/core/device.h"
#include "tally/core/number.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"

namespace tally::test {

int64_t flat_offset(const View& v, int64_t k) {
  int64_t offset = 0;
  for (int i = v.size.rank - 1; i >= 0; --i) {
    offset += k % v.size.v[i] * v.stride.v[i];
    k /= v.size.v[i];
  }
  return offset;
}

double read_element(const View& v, int64_t offset) {
  if (v.data == nullptr) return 0;
  return read_number(v.data, v.dtype, offset);
}

namespace {
Device device_of_tests = kCpu;
}

void set_test_device(Device device) { device_of_tests = device; }
Device test_device() { return device_of_tests; }

View host_view(const View& v, std::vector<char>& buffer) {
  if (v.data == nullptr || v.device.kind == DeviceKind::kCpu || v.numel() == 0) return v;
  int64_t first = 0, last = 0;  // of the elements reached; a stride may be negative
  for (int i = 0; i < v.size.rank; ++i) {
    const int64_t reach = (v.size.v[i] - 1) * v.stride.v[i];
    (reach < 0 ? first : last) += reach;
  }
  const int64_t item = item_size(v.dtype);
  buffer.resize(static_cast<size_t>((last - first + 1) * item));
  copy_bytes(buffer.data(), kCpu, static_cast<const char*>(v.data) + first * item, v.device,
             static_cast<int64_t>(buffer.size()));
  View host = v;
  host.data = buffer.data() - first * item;
  return host;
}

std::map<std::string, Reference>& references() {
  static std::map<std::string, Reference> all;
  return all;
}

void VerifyLaunches::before(const char* name, const void* args) {
  const auto it = references().find(name);
  if (it == references().end()) {
    ADD_FAILURE() << name << " has no reference loop";
    return;
  }
  const Reference& r = it->second;
  Counted::matmul = 0, Counted::other = 0;
  Io<Counted> count;
  r.count(args, count);
  const Cost cost = r.cost(args);
  EXPECT_EQ(cost.matmul_flops, Counted::matmul) << name << ": cost() against the counted reference";
  EXPECT_EQ(cost.other_flops, Counted::other) << name << ": cost() against the counted reference";
  counted_.matmul_flops += Counted::matmul;
  counted_.other_flops += Counted::other;
  ++launches_;
  if (!values_) return;
  truth_ = std::make_unique<Io<double>>();
  naive_ = std::make_unique<Io<float>>();
  r.truth(args, *truth_);
  r.naive(args, *naive_);
}

namespace {

double epsilon_of(DType t) { return is_float(t) ? finfo(t).eps : 0.0; }

// max |error| <= 2 * max |naive error| + a few units in the last place of the largest value.
void compare(const char* name, size_t which, const View& on_device, const std::vector<double>& truth,
             const std::vector<float>& naive) {
  std::vector<char> buffer;
  const View view = host_view(on_device, buffer);
  double worst = 0, naive_worst = 0, largest = 0;
  int64_t at = 0;
  for (int64_t k = 0; k < view.numel(); ++k) {
    const double got = read_element(view, flat_offset(view, k)), want = truth[k];
    if (std::isnan(want) != std::isnan(got) || (std::isinf(want) && want != got)) {
      ADD_FAILURE() << name << " output " << which << " element " << k << ": " << got << ", truth " << want;
      return;
    }
    if (!std::isfinite(want)) continue;
    largest = std::max(largest, std::abs(want));
    if (std::abs(got - want) > worst) worst = std::abs(got - want), at = k;
    if (std::isfinite(naive[k])) naive_worst = std::max(naive_worst, std::abs(naive[k] - want));
  }
  if (view.dtype == DType::kF64) naive_worst = 0;
  const double allowed = 2 * naive_worst + 4 * epsilon_of(view.dtype) * largest + 1e-30;
  EXPECT_LE(worst, view.dtype == DType::kF64 ? std::max(allowed, 1e-11 * largest) : allowed)
      << name << " output " << which << " of shape " << str(view.size) << " at element " << at << ": naive error "
      << naive_worst << ", largest value " << largest;
}

}  // namespace

void VerifyLaunches::after(const char* name, const void*, const Cost&) {
  if (!truth_) return;
  for (size_t i = 0; i < truth_->outputs().size(); ++i) {
    const View& v = truth_->outputs()[i].view;
    if (v.data != nullptr)
      compare(name, i, v, truth_->outputs()[i].writer->values(), naive_->outputs()[i].writer->values());
  }
  truth_.reset();
  naive_.reset();
}

Tensor random_tensor(const Input& input, DType dtype, uint64_t seed) {
  const int64_t n = input.size.numel();
  if (input.kind == Input::kIndex) {
    std::vector<int32_t> ids(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      ids[i] = static_cast<int32_t>(random_below(seed, 0, i, std::max<int64_t>(1, input.limit)));
    return Tensor::from(ids, input.size);
  }
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    double sum = -6;  // about normal: the sum of twelve uniforms
    for (int k = 0; k < 12; ++k) sum += uniform_from_u32(random_u32(seed, 1, i * 12 + k));
    values[i] = input.kind == Input::kPositive ? std::abs(sum) + 0.25 : sum;
  }
  Tensor f64 = Tensor::from(values, input.size);
  if (dtype == DType::kF64) return f64;
  Tensor out = Tensor::empty(input.size, dtype);
  copy_(out, f64);
  return out;
}

std::vector<double> values_of(const Tensor& t) { return t.to_vector(); }

namespace {

std::vector<Tensor> inputs_of(const OpCase& c, DType dtype, uint64_t seed, bool gradients) {
  LaunchObserver* const observer = set_launch_observer(nullptr);
  std::vector<Tensor> all;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    all.push_back(to(random_tensor(c.inputs[i], dtype, seed + i), test_device()));
    if (gradients && c.inputs[i].gradient && c.inputs[i].kind != Input::kIndex) all.back().set_requires_grad();
  }
  set_launch_observer(observer);
  return all;
}

// Output and gradients of all inputs as one list of values.
std::vector<double> run_forward_backward(const OpCase& c, const std::vector<Tensor>& inputs, uint64_t seed) {
  Tensor y = c.run(inputs);
  std::vector<double> all = y.to_vector();
  if (!y.requires_grad()) return all;
  LaunchObserver* const observer = set_launch_observer(nullptr);
  Tensor g = to(random_tensor({y.sizes()}, y.dtype(), seed + 1000), y.device());
  set_launch_observer(observer);
  backward(y, g);
  y = {};
  for (const Tensor& t : inputs)
    if (Tensor d = t.grad(); d.defined()) {
      EXPECT_EQ(d.sizes(), t.sizes()) << c.name << ": a gradient's shape";
      const std::vector<double> v = d.to_vector();
      all.insert(all.end(), v.begin(), v.end());
    }
  return all;
}

void expect_same_bits(const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) {
      ADD_FAILURE() << what << ": value " << i << " is " << a[i] << " and " << b[i];
      return;
    }
}

// The same values stored otherwise: transposed (axes reversed in memory), or every second element of a larger block.
Tensor stored_otherwise(const Tensor& t, bool transposed) {
  const Dims size = t.sizes();
  Dims stride;
  const int r = t.dim();
  stride.rank = r;
  int64_t step = 1;
  if (transposed) {
    for (int i = 0; i < r; ++i) stride[i] = step, step *= size[i];
  } else {
    for (int i = r - 1; i >= 0; --i) stride[i] = step, step *= (i == r - 1 ? 2 : 1) * size[i] + 1;
    if (r > 0) stride[r - 1] = 2;
    for (int i = r - 2; i >= 0; --i) stride[i] = stride[i + 1] * (size[i + 1] + 1);
    step = r > 0 ? stride[0] * (size[0] + 1) : 1;
  }
  Tensor out = Tensor::empty(Dims(std::max<int64_t>(step, 1)), t.dtype(), t.device()).alias(size, stride, 0);
  copy_(out, t);
  if (t.requires_grad()) out.set_requires_grad();
  return out;
}

void check_layouts(const OpCase& c, uint64_t seed) {
  const std::vector<double> want = run_forward_backward(c, inputs_of(c, DType::kF32, seed, true), seed);
  for (int variant = 0; variant < 2; ++variant) {
    std::vector<Tensor> inputs = inputs_of(c, DType::kF32, seed, true);
    for (Tensor& t : inputs) t = stored_otherwise(t, variant == 0);
    const std::vector<double> got = run_forward_backward(c, inputs, seed);
    const std::string what = c.name + (variant ? " strided" : " transposed");
    if (!c.library_on_card || test_device().kind == DeviceKind::kCpu) {
      expect_same_bits(want, got, what);
      continue;
    }
    ASSERT_EQ(want.size(), got.size()) << what;
    double largest = 0;
    for (const double x : want) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(want[i], got[i], 1e-5 * largest) << what << " " << i;
  }
}

// On a card: a second run.
void check_threads(const OpCase& c, uint64_t seed) {
  if (test_device().kind != DeviceKind::kCpu) {
    const std::vector<double> one = run_forward_backward(c, inputs_of(c, DType::kF32, seed, true), seed);
    const std::vector<double> two = run_forward_backward(c, inputs_of(c, DType::kF32, seed, true), seed);
    return expect_same_bits(one, two, c.name + " run twice");
  }
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<double> one = run_forward_backward(c, inputs_of(c, DType::kF32, seed, true), seed);
  set_num_threads(2);
  const std::vector<double> two = run_forward_backward(c, inputs_of(c, DType::kF32, seed, true), seed);
  set_num_threads(before);
  expect_same_bits(one, two, c.name + " with 1 and 2 threads");
}

void print_perf(const OpCase& c, uint64_t seed) {
  const std::vector<Tensor> inputs = inputs_of(c, DType::kF32, seed, false);
  LedgerGuard guard;
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    guard.ledger().clear_costs();
    const auto start = std::chrono::steady_clock::now();
    c.run(inputs);
    synchronize(test_device());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  const Cost cost = guard.ledger().cost();
  std::printf("%-40s %9.1f us %8.2f GB/s %8.2f GFLOP/s\n", c.name.c_str(), best * 1e6,
              (cost.bytes_read + cost.bytes_written) / best * 1e-9,
              (cost.matmul_flops + cost.other_flops) / best * 1e-9);
}

}  // namespace

void check_gradients(const OpCase& c, uint64_t seed) {
  std::vector<Tensor> inputs = inputs_of(c, DType::kF64, seed, true);
  Tensor y = c.run(inputs);
  if (!y.requires_grad()) return;
  const std::vector<double> weight = random_tensor({y.sizes()}, DType::kF64, seed + 1000).to_vector();
  backward(y, Tensor::from(weight, y.sizes()));
  const auto loss = [&] {
    const std::vector<double> v = c.run(inputs).to_vector();
    double sum = 0;
    for (size_t i = 0; i < v.size(); ++i) sum += v[i] * weight[i];
    return sum;
  };
  constexpr double h = 1e-5;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].requires_grad()) continue;
    ASSERT_TRUE(inputs[k].grad().defined()) << c.name << ": input " << k << " got no gradient";
    const std::vector<double> got = inputs[k].grad().to_vector();
    double* p = inputs[k].data<double>();
    for (int64_t i = 0; i < inputs[k].numel(); ++i) {
      const double x = p[i];
      p[i] = x + h;
      const double up = loss();
      p[i] = x - h;
      const double down = loss();
      p[i] = x;
      const double want = (up - down) / (2 * h);
      if (std::abs(got[i] - want) > c.grad_tolerance * (1 + std::abs(want))) {
        ADD_FAILURE() << c.name << ": gradient of input " << k << " element " << i << " is " << got[i]
                      << ", central difference " << want;
        return;
      }
    }
  }
}

void run_op_case(const OpCase& c) {
  SCOPED_TRACE(c.name);
  const uint64_t seed = 1234;
  const int64_t damaged = damaged_guards(test_device());
  {
    VerifyLaunches verify;
    run_forward_backward(c, inputs_of(c, DType::kF32, seed, true), seed);
    if (c.bf16) run_forward_backward(c, inputs_of(c, DType::kBF16, seed, true), seed);
  }
  if (test_device().kind == DeviceKind::kCpu) check_gradients(c, seed);
  if (c.layouts) check_layouts(c, seed);
  check_threads(c, seed);
  EXPECT_EQ(damaged_guards(test_device()), damaged) << c.name << ": a kernel wrote outside its output";
  if (const char* perf = std::getenv("TALLY_PERF"); perf && *perf == '1') print_perf(c, seed);
}

void run_op_cases(const std::vector<OpCase>& cases) {
  for (const OpCase& c : cases) run_op_case(c);
}

namespace {

// Every op test runs with poisoned and guarded memory.
class Guards : public ::testing::Environment {
 public:
  void SetUp() override {
    set_memory_guards(true);
    if (test_device().kind != DeviceKind::kCpu) set_memory_guards(true, test_device());
  }
};
const auto* const registered = ::testing::AddGlobalTestEnvironment(new Guards);

}  // namespace

}  // namespace tally::test
