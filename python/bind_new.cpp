// New tensors: zeros, arange, randn ...: sizes as numbers or one sequence, then dtype, device, requires_grad by name.
#include "python/bind.h"
#include "python/operand.h"
#include "tally/nn/init.h"
#include "tally/ops/random.h"

namespace tally::py {
namespace {

using MaybeType = std::optional<DType>;

TensorOptions options_of(MaybeType dtype, DeviceArg device, bool requires_grad) {
  TensorOptions o;
  o.dtype = dtype, o.requires_grad = requires_grad;
  if (device.given()) o.device = device.get();
  return o;
}

// zeros(2, 3, dtype=, device=, requires_grad=).
template <class F>
void sized(nb::module_& m, const char* name, F f, const char* doc) {
  m.def(
      name,
      [f, name](const nb::args& size, MaybeType dtype, DeviceArg device, bool requires_grad) {
        const Dims d = dims_of(size, name);
        const TensorOptions o = options_of(dtype, device, requires_grad);
        const Unlocked free;
        return f(d, o);
      },
      "size"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), "requires_grad"_a = false, doc);
  m.def(
      name,
      [f](const Dims& size, MaybeType dtype, DeviceArg device, bool requires_grad) {
        const TensorOptions o = options_of(dtype, device, requires_grad);
        const Unlocked free;
        return f(size, o);
      },
      nb::kw_only(), "size"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), "requires_grad"_a = false, doc);
}

// x.new_zeros(2, 3): of x's dtype and device unless others are given.
template <class F>
void new_of(TensorClass& c, const char* name, F f, const char* doc) {
  c.def(
      name,
      [f, name](const Tensor& x, const nb::args& size, MaybeType dtype, DeviceArg device, bool requires_grad) {
        TensorOptions o = options_of(dtype.value_or(x.dtype()), device, requires_grad);
        if (!device.given()) o.device = x.device();
        const Dims d = dims_of(size, name);
        const Unlocked free;
        return f(d, o);
      },
      "size"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), "requires_grad"_a = false, doc);
}

// zeros_like(x, dtype=, device=, requires_grad=).
template <class F>
void like(nb::module_& m, const char* name, F f, const char* doc) {
  m.def(
      name,
      [f](const Tensor& x, MaybeType dtype, DeviceArg device, bool requires_grad) {
        return f(x, options_of(dtype, device, requires_grad));
      },
      "input"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), "requires_grad"_a = false, doc);
}

#define TALLY_OPTIONS nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), "requires_grad"_a = false

void constants(nb::module_& m) {
  sized(
      m, "empty", [](const Dims& d, const TensorOptions& o) { return empty(d, o); }, "Uninitialised, float32.");
  sized(
      m, "empty_parameter",
      [](const Dims& d, TensorOptions o) {
        o.category = Category::kParameter;
        return empty(d, o);
      },
      "empty(), accounted as a parameter.");
  sized(
      m, "zeros", [](const Dims& d, const TensorOptions& o) { return zeros(d, o); }, "All 0, float32.");
  sized(
      m, "ones", [](const Dims& d, const TensorOptions& o) { return ones(d, o); }, "All 1, float32.");
  m.def(
      "full",
      [](const Dims& size, Scalar v, MaybeType t, DeviceArg d, bool g) { return full(size, v, options_of(t, d, g)); },
      "size"_a, "fill_value"_a, TALLY_OPTIONS, "All the value, of its dtype.");
  m.def(
      "arange", [](Scalar end, MaybeType t, DeviceArg d, bool g) { return arange(end, options_of(t, d, g)); }, "end"_a,
      TALLY_OPTIONS, "0, 1 ... before end: int64, or float32 if a number is a float.");
  m.def(
      "arange",
      [](Scalar start, Scalar end, Scalar step, MaybeType t, DeviceArg d, bool g) {
        return arange(start, end, step, options_of(t, d, g));
      },
      "start"_a, "end"_a, "step"_a = 1, TALLY_OPTIONS, "start, start + step ... before end.");
  m.def(
      "linspace",
      [](double start, double end, int64_t steps, MaybeType t, DeviceArg d, bool g) {
        return linspace(start, end, steps, options_of(t, d, g));
      },
      "start"_a, "end"_a, "steps"_a, TALLY_OPTIONS, "So many numbers from start to end, both included.");
  m.def(
      "eye",
      [](int64_t n, std::optional<int64_t> k, MaybeType t, DeviceArg d, bool g) {
        return eye(n, k.value_or(n), options_of(t, d, g));
      },
      "n"_a, "m"_a = nb::none(), TALLY_OPTIONS, "1 on the diagonal, else 0.");
  like(
      m, "empty_like", [](const Tensor& x, const TensorOptions& o) { return empty_like(x, o); },
      "Uninitialised, as x.");
  like(
      m, "zeros_like", [](const Tensor& x, const TensorOptions& o) { return zeros_like(x, o); }, "All 0, as x.");
  like(
      m, "ones_like", [](const Tensor& x, const TensorOptions& o) { return ones_like(x, o); }, "All 1, as x.");
  m.def(
      "full_like",
      [](const Tensor& x, Scalar v, MaybeType t, DeviceArg d, bool g) { return full_like(x, v, options_of(t, d, g)); },
      "input"_a, "fill_value"_a, TALLY_OPTIONS, "All the value, as x.");
}

// As another tensor: its dtype and device.
void from_tensor(TensorClass& c) {
  new_of(
      c, "new_empty", [](const Dims& d, const TensorOptions& o) { return empty(d, o); },
      "Uninitialised, of this tensor's dtype and device.");
  new_of(
      c, "new_zeros", [](const Dims& d, const TensorOptions& o) { return zeros(d, o); },
      "All 0, of this tensor's dtype and device.");
  new_of(
      c, "new_ones", [](const Dims& d, const TensorOptions& o) { return ones(d, o); },
      "All 1, of this tensor's dtype and device.");
  c.def(
       "new_full",
       [](const Tensor& x, const Dims& size, Scalar v, MaybeType t) {
         return full(size, v, {.dtype = t.value_or(x.dtype()), .device = x.device()});
       },
       "size"_a, "fill_value"_a, "dtype"_a = nb::none(), "All the value, of this tensor's dtype and device.")
      .def(
          "new_tensor",
          [](const Tensor& x, nb::handle data, MaybeType t) {
            return tensor_from_python(data, t.value_or(x.dtype()), x.device());
          },
          nb::arg("data").none(), "dtype"_a = nb::none(), "tensor() of this tensor's dtype and device.");
}

void random(nb::module_& m) {
  m.def(
      "manual_seed", [](int64_t seed) { manual_seed(static_cast<uint64_t>(seed)); }, "seed"_a,
      "Random draws start anew: the same calls then give the same numbers, on every device.");
  m.def(
      "initial_seed", [] { return default_generator().initial_seed(); }, "The seed that random draws started from.");
  m.def(
      "get_rng_state", [] { return std::pair(default_generator().initial_seed(), default_generator().draws()); },
      "Seed and number of draws: what set_rng_state() takes.");
  m.def(
      "set_rng_state",
      [](std::pair<uint64_t, uint64_t> state) { default_generator().manual_seed(state.first).set_draws(state.second); },
      "state"_a, "Draws go on from what get_rng_state() gave.");
  sized(
      m, "rand", [](const Dims& d, const TensorOptions& o) { return rand(d, o); }, "Uniform in [0, 1).");
  sized(
      m, "randn", [](const Dims& d, const TensorOptions& o) { return randn(d, o); }, "Normal, mean 0, variance 1.");
  m.def(
      "randint",
      [](int64_t low, int64_t high, const Dims& size, MaybeType t, DeviceArg d, bool g) {
        return randint(low, high, size, options_of(t, d, g));
      },
      "low"_a, "high"_a, "size"_a, TALLY_OPTIONS, "Integers of [low, high).");
  m.def(
      "randint",
      [](int64_t high, const Dims& size, MaybeType t, DeviceArg d, bool g) {
        return randint(0, high, size, options_of(t, d, g));
      },
      "high"_a, "size"_a, TALLY_OPTIONS, "Integers of [0, high).");
  m.def(
      "randperm", [](int64_t n, MaybeType t, DeviceArg d, bool g) { return randperm(n, options_of(t, d, g)); }, "n"_a,
      TALLY_OPTIONS, "0 .. n - 1 in random order.");
  m.def(
      "normal",
      [](double mean, double std, const Dims& size, MaybeType t, DeviceArg d, bool g) {
        return normal(mean, std, size, options_of(t, d, g));
      },
      "mean"_a, "std"_a, "size"_a, TALLY_OPTIONS, "Normal.");
  m.def(
      "bernoulli", [](const Tensor& p) { return bernoulli(p); }, "input"_a, "1 with the probability of each element.");
  like(
      m, "rand_like", [](const Tensor& x, const TensorOptions& o) { return rand_like(x, o); }, "rand() as x.");
  like(
      m, "randn_like", [](const Tensor& x, const TensorOptions& o) { return randn_like(x, o); }, "randn() as x.");
}

// What tally.nn.init calls: x in place, unrecorded, also where it is a leaf that requires a gradient.
void initial(nb::module_& m, TensorClass& c) {
  m.def(
      "init_uniform_", [](const Tensor& x, double a, double b) { uniform_(x.detach(), a, b); }, Release(),
      "Uniform in [a, b), in place, unrecorded.");
  m.def(
      "init_normal_", [](const Tensor& x, double mean, double std) { normal_(x.detach(), mean, std); }, Release(),
      "Normal, in place, unrecorded.");
  m.def(
      "init_trunc_normal_",
      [](const Tensor& x, double mean, double std, double a, double b) { trunc_normal_(x.detach(), mean, std, a, b); },
      Release(), "Normal within [a, b], in place, unrecorded.");
  c.def(
       "uniform_",
       [](nb::handle_t<Tensor> self, double a, double b) -> Self {
         uniform_(nb::cast<Tensor&>(self), a, b);
         return nb::borrow(self);
       },
       "low"_a = 0.0, "high"_a = 1.0, "Uniform in [low, high), in place.")
      .def(
          "normal_",
          [](nb::handle_t<Tensor> self, double mean, double std) -> Self {
            normal_(nb::cast<Tensor&>(self), mean, std);
            return nb::borrow(self);
          },
          "mean"_a = 0.0, "std"_a = 1.0, "Normal, in place.")
      .def(
          "random_",
          [](nb::handle_t<Tensor> self, int64_t low, int64_t high) -> Self {
            random_(nb::cast<Tensor&>(self), low, high);
            return nb::borrow(self);
          },
          "low"_a, "high"_a, "Integers of [low, high), in place.");
}

}  // namespace

void bind_new(nb::module_& m, TensorClass& c) {
  constants(m);
  random(m);
  initial(m, c);
  from_tensor(c);
}

}  // namespace tally::py
