// How ops are tested. Two parts:
//
// 1. A reference loop per kernel, written in the op's test as a template over the number type and registered once:
//      static const bool r = register_reference<FooArgs>([](const FooArgs& a, auto& io) {
//        using N = NumberOf<decltype(io)>;
//        auto x = io.in(a.x);   // x(i, j) reads N;   x.flat(k): k-th element in logical order
//        auto y = io.out(a.y);  // y(i, j) = ...;     io.inout(v): starts from what is there
//      });
//    With double it is the truth, with float the naive error from which the tolerance is derived, with Counted it
//    counts FLOPs. `VerifyLaunches` checks every launch made while it is alive: outputs against the truth, the cost()
//    against the count. A kernel without a reference fails.
// 2. Cases as data: run_op_case() runs an op on a list of shapes in the modes check (f32 and bf16 under
//    VerifyLaunches), grad (central differences in f64), layout (strided, sliced and transposed inputs give the same
//    bits) and threads (1 and 2 give the same bits); with TALLY_PERF=1 it prints GB/s and GFLOP/s.
//    The test program's allocator fills blocks with NaN and guards them on both sides.
//    The same cases run on a card in tally_cuda_tests (tests/cuda), which sets the test device: check, layout, and two
//    runs that must give the same bits; gradients in f64 are the CPU's alone.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "tally/base/error.h"
#include "tally/core/tensor.h"
#include "tally/ops/launch.h"

namespace tally::test {

// A number without a value that counts what is done to it.
struct Counted {
  static inline thread_local int64_t matmul = 0, other = 0;
  Counted() = default;
  Counted(double) {}
  static Counted one() { return ++other, Counted{}; }
  Counted& operator+=(Counted) { return ++other, *this; }
  Counted& operator-=(Counted) { return ++other, *this; }
  Counted& operator*=(Counted) { return ++other, *this; }
  Counted& operator/=(Counted) { return ++other, *this; }
};
inline Counted operator+(Counted, Counted) { return Counted::one(); }
inline Counted operator-(Counted, Counted) { return Counted::one(); }
inline Counted operator*(Counted, Counted) { return Counted::one(); }
inline Counted operator/(Counted, Counted) { return Counted::one(); }
inline Counted operator-(Counted) { return {}; }  // a sign is free

// Functions of references: one FLOP each.
inline Counted num_exp(Counted) { return Counted::one(); }
inline Counted num_log(Counted) { return Counted::one(); }
inline Counted num_sqrt(Counted) { return Counted::one(); }
inline Counted num_tanh(Counted) { return Counted::one(); }
inline Counted num_erf(Counted) { return Counted::one(); }
inline Counted num_sin(Counted) { return Counted::one(); }
inline Counted num_cos(Counted) { return Counted::one(); }
inline Counted num_pow(Counted, Counted) { return Counted::one(); }
inline Counted num_max(Counted, Counted) { return Counted::one(); }
template <class N>
N num_exp(N x) {
  return std::exp(x);
}
template <class N>
N num_log(N x) {
  return std::log(x);
}
template <class N>
N num_sqrt(N x) {
  return std::sqrt(x);
}
template <class N>
N num_tanh(N x) {
  return std::tanh(x);
}
template <class N>
N num_erf(N x) {
  return std::erf(x);
}
template <class N>
N num_sin(N x) {
  return std::sin(x);
}
template <class N>
N num_cos(N x) {
  return std::cos(x);
}
template <class N>
N num_pow(N x, N y) {
  return std::pow(x, y);
}
template <class N>
N num_max(N x, N y) {
  return x > y ? x : y;
}
// condition(x) ? a : b where the test of x counts as one compare; Counted takes a.
template <class N, class C>
N num_where(N x, const C& condition, N a, N b) {
  if constexpr (std::is_same_v<N, Counted>)
    return Counted::one();
  else
    return condition(x) ? a : b;
}
// acc += a * b as matmul work: two matmul FLOPs.
inline void mul_add(Counted&, Counted, Counted) { Counted::matmul += 2; }
template <class N>
void mul_add(N& acc, N a, N b) {
  acc += a * b;
}

// Offset of logical element k.
int64_t flat_offset(const View& v, int64_t k);
double read_element(const View& v, int64_t offset);  // any dtype; 0 where there is no data

// Where the cases run: the CPU unless set.
void set_test_device(Device device);
Device test_device();
// The view with its bytes copied to `buffer` when they are on a card; else the view itself.
View host_view(const View& v, std::vector<char>& buffer);

template <class N>
class Reader {
 public:
  explicit Reader(const View& v) : buffer_(std::make_shared<std::vector<char>>()) {
    v_ = std::is_same_v<N, Counted> ? v : host_view(v, *buffer_);
  }
  template <class... I>
  N operator()(I... index) const {
    int64_t offset = 0;
    int axis = 0;
    ((offset += static_cast<int64_t>(index) * v_.stride.v[axis++]), ...);
    return at(offset);
  }
  N flat(int64_t k) const { return at(flat_offset(v_, k)); }

 private:
  N at(int64_t offset) const {
    if constexpr (std::is_same_v<N, Counted>)
      return {};
    else
      return static_cast<N>(read_element(v_, offset));
  }
  std::shared_ptr<std::vector<char>> buffer_;  // of values that are on a card
  View v_;
};

// Results in logical order, beside the kernel's own.
template <class N>
class Writer {
 public:
  Writer(const View& v, bool keep) : size_(v.size), values_(std::make_shared<std::vector<N>>()) {
    if constexpr (!std::is_same_v<N, Counted>) {
      values_->resize(static_cast<size_t>(v.numel()));
      if (!keep) return;
      std::vector<char> buffer;
      const View host = host_view(v, buffer);
      for (int64_t k = 0; k < v.numel(); ++k) (*values_)[k] = static_cast<N>(read_element(host, flat_offset(host, k)));
    }
  }
  template <class... I>
  N& operator()(I... index) {
    int64_t k = 0;
    int axis = 0;
    ((k = k * size_.v[axis++] + static_cast<int64_t>(index)), ...);
    return flat(k);
  }
  N& flat(int64_t k) {
    if constexpr (std::is_same_v<N, Counted>)
      return dummy_;
    else
      return (*values_)[k];
  }
  const std::vector<N>& values() const { return *values_; }

 private:
  Dims size_;
  std::shared_ptr<std::vector<N>> values_;
  N dummy_{};
};

// Handed to a reference loop.
template <class N>
class Io {
 public:
  using Number = N;
  Reader<N> in(const View& v) const { return Reader<N>(v); }
  Reader<double> index(const View& v) const { return Reader<double>(v); }  // ids, targets: always real
  Writer<N>& out(const View& v) { return writer(v, false); }
  Writer<N>& inout(const View& v) { return writer(v, true); }

  struct Output {
    View view;
    std::unique_ptr<Writer<N>> writer;
  };
  std::vector<Output>& outputs() { return outputs_; }

 private:
  Writer<N>& writer(const View& v, bool keep) {
    outputs_.push_back({v, std::make_unique<Writer<N>>(v, keep)});
    return *outputs_.back().writer;
  }
  std::vector<Output> outputs_;
};
template <class IoType>
using NumberOf = typename std::decay_t<IoType>::Number;

// A registered reference, with the argument type erased.
struct Reference {
  std::function<void(const void*, Io<double>&)> truth;
  std::function<void(const void*, Io<float>&)> naive;
  std::function<void(const void*, Io<Counted>&)> count;
  std::function<Cost(const void*)> cost;
};
std::map<std::string, Reference>& references();

template <KernelArgs A, class F>
bool register_reference(F loop) {
  const auto erase = [loop](const void* args, auto& io) { loop(*static_cast<const A*>(args), io); };
  references()[A::name] = {erase, erase, erase, [](const void* args) { return static_cast<const A*>(args)->cost(); }};
  return true;
}

// Checks every launch on this thread while alive; failures are GoogleTest failures.
class VerifyLaunches : public LaunchObserver {
 public:
  explicit VerifyLaunches(bool values = true) : values_(values), previous_(set_launch_observer(this)) {}
  ~VerifyLaunches() override { set_launch_observer(previous_); }
  void before(const char* name, const void* args) override;
  void after(const char* name, const void* args, const Cost& cost) override;
  Cost counted() const { return counted_; }  // FLOPs of the reference loops so far
  int64_t launches() const { return launches_; }

 private:
  bool values_;  // compare outputs too, not only FLOPs
  LaunchObserver* previous_;
  Cost counted_;
  int64_t launches_ = 0;
  std::unique_ptr<Io<double>> truth_;
  std::unique_ptr<Io<float>> naive_;
};

// One input of a case.
struct Input {
  Dims size;
  enum Kind { kNormal, kPositive, kIndex } kind = kNormal;
  int64_t limit = 0;     // kIndex: ids in [0, limit)
  bool gradient = true;  // float inputs: checked by central differences
};

struct OpCase {
  std::string name;
  std::vector<Input> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> run;
  bool bf16 = true;     // also in bf16
  bool layouts = true;  // inputs may be strided
  double grad_tolerance = 1e-6;
  bool library_on_card = false;  // whose algorithm depends on the layout: strided inputs agree within rounding there
};
void run_op_case(const OpCase& c);
void run_op_cases(const std::vector<OpCase>& cases);

// Random values by the counter generator.
Tensor random_tensor(const Input& input, DType dtype, uint64_t seed);
// Bits of a tensor's values in logical order.
std::vector<double> values_of(const Tensor& t);
// The gradients of sum(f(inputs) * fixed random weights) by central differences in f64 against the tape's.
void check_gradients(const OpCase& c, uint64_t seed);

// What kind of Error f throws.
template <class F>
ErrorKind error_kind(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.kind;
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::kRuntime;
}

// Where logical element k of `size` falls in the reduced shape `out` (sizes of 1).
inline int64_t reduced_place(int64_t k, const Dims& size, const Dims& out) {
  int64_t place = 0, step = 1;
  for (int i = size.rank - 1; i >= 0; --i) {
    if (out[i] != 1) place += k % size[i] * step;
    step *= out[i];
    k /= size[i];
  }
  return place;
}

}  // namespace tally::test
