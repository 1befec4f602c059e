// y (m, n) = x (m, k) W^T, W (n, k), in f32 by Tally, OpenBLAS and oneDNN: products of squares and products with few
// rows, with W as it is and laid out once in advance (Tally's pack_weight, oneDNN's format of its own choice).
//   gemm_peers [threads] [rounds]        a JSON line for each case and program
// Every program's y is compared with Tally's before anything is timed. A round runs each program in turn, with a pause
// between them in which the other's threads fall asleep; `seconds` is the median of the rounds, `fastest` the least.
// OpenBLAS takes its kernels from the processor's model, and for one that it does not know the slowest; where the
// environment names no OPENBLAS_CORETYPE the program starts itself again with one that the instruction set allows.
#include <fmt/core.h>
#include <omp.h>
#include <unistd.h>
#include <dnnl.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/base/rng.h"
#include "tally/core/tape.h"
#include "tally/ops/matmul.h"

// cblas.h stands in different folders on different systems; these two are all that is needed of it.
extern "C" {
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc);
void openblas_set_num_threads(int n);
char* openblas_get_corename();
}

namespace {

using namespace tally;
using Clock = std::chrono::steady_clock;

constexpr double kLeastSeconds = 0.01;  // of a measurement: a call is repeated to fill it
constexpr auto kPause = std::chrono::milliseconds(60);

struct Size {
  int64_t m, n, k;
};
constexpr int64_t kFewRows[] = {1, 2, 4, 8, 16, 32};

std::vector<Size> sizes() {
  std::vector<Size> all = {{512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}};
  for (int64_t n : {1024, 2048})
    for (int64_t m : kFewRows) all.push_back({m, n, n});
  return all;
}

struct Program {
  const char* name;
  std::function<void()> run;
  std::function<const float*()> result;
};

Tensor random_matrix(int64_t rows, int64_t columns, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = uniform_from_u32(random_u32(seed, 0, i)) - 0.5f;
  return Tensor::from(values, Dims(rows, columns));
}

// oneDNN's product for one pair of memories; `packed` lets it choose the layout of the weight.
class OneDnn {
 public:
  OneDnn(const Size& s, float* x, float* w, bool packed) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using Tag = dnnl::memory::format_tag;
    const auto type = dnnl::memory::data_type::f32;
    const dnnl::memory::desc x_desc({s.m, s.k}, type, Tag::ab), y_desc({s.m, s.n}, type, Tag::ab);
    const dnnl::memory::desc plain({s.k, s.n}, type, Tag::ba), wanted({s.k, s.n}, type, packed ? Tag::any : Tag::ba);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc desc(engine_, x_desc, wanted, y_desc);
#else
    const dnnl::matmul::primitive_desc desc({x_desc, wanted, y_desc}, engine_);
#endif
    x_ = dnnl::memory(x_desc, engine_, x), y_ = dnnl::memory(y_desc, engine_);
    dnnl::memory given(plain, engine_, w);
    w_ = dnnl::memory(desc.weights_desc(), engine_);
    dnnl::reorder(given, w_).execute(stream_, given, w_);
    stream_.wait();
    product_ = dnnl::matmul(desc);
  }
  void run() {
    product_.execute(stream_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, w_}, {DNNL_ARG_DST, y_}});
    stream_.wait();
  }
  const float* result() const { return static_cast<const float*>(y_.get_data_handle()); }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory x_, w_, y_;
  dnnl::matmul product_;
};

double seconds_of(const std::function<void()>& f, int64_t calls) {
  const auto start = Clock::now();
  for (int64_t i = 0; i < calls; ++i) f();
  return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(calls);
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// Sums of k products of numbers below 1/2: the error of an f32 sum in any order is far below this.
void check(const Size& s, const Program& p, const float* want) {
  const double allowed = 1e-6 * static_cast<double>(s.k);
  for (int64_t i = 0; i < s.m * s.n; ++i)
    if (!(std::abs(p.result()[i] - want[i]) <= allowed))
      fail("{} of {} x {} x {}: element {} is {} and {} by tally", p.name, s.m, s.n, s.k, i, p.result()[i], want[i]);
}

void contest(const Size& s, int threads, int rounds) {
  const Tensor x = random_matrix(s.m, s.k, 1), w = random_matrix(s.n, s.k, 2), packed = pack_weight(w);
  std::vector<float> blas_y(static_cast<size_t>(s.m * s.n));
  Tensor y, packed_y;
  OneDnn plain_dnn(s, x.data<float>(), w.data<float>(), false), packed_dnn(s, x.data<float>(), w.data<float>(), true);
  const auto sgemm = [&] {
    constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
    const int m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = static_cast<int>(s.k);
    cblas_sgemm(kRowMajor, kPlain, kTransposed, m, n, k, 1, x.data<float>(), k, w.data<float>(), k, 0, blas_y.data(),
                n);
  };
  const std::vector<Program> programs = {
      {"tally", [&] { y = linear(x, w); }, [&] { return y.data<float>(); }},
      {"tally packed", [&] { packed_y = linear_packed(x, packed, s.n); }, [&] { return packed_y.data<float>(); }},
      {"openblas", sgemm, [&] { return blas_y.data(); }},
      {"onednn", [&] { plain_dnn.run(); }, [&] { return plain_dnn.result(); }},
      {"onednn packed", [&] { packed_dnn.run(); }, [&] { return packed_dnn.result(); }}};
  for (const Program& p : programs) {
    p.run();
    check(s, p, y.data<float>());
  }
  std::vector<std::vector<double>> times(programs.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < programs.size(); ++i) {
      std::this_thread::sleep_for(kPause);
      const double once = std::min(seconds_of(programs[i].run, 1), seconds_of(programs[i].run, 1));
      times[i].push_back(
          seconds_of(programs[i].run, std::max<int64_t>(1, static_cast<int64_t>(kLeastSeconds / (once + 1e-9)))));
    }
  for (size_t i = 0; i < programs.size(); ++i) {
    const double seconds = median(times[i]), fastest = *std::min_element(times[i].begin(), times[i].end());
    fmt::print(R"({{"contest": "gemm", "m": {}, "n": {}, "k": {}, "threads": {}, "program": "{}", "seconds": {:.9f}, )"
               R"("fastest": {:.9f}, "gflops": {:.3f}, "openblas_core": "{}"}})"
               "\n",
               s.m, s.n, s.k, threads, programs[i].name, seconds, fastest,
               2e-9 * static_cast<double>(s.m * s.n * s.k) / seconds, openblas_get_corename());
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2, rounds = argc > 2 ? std::atoi(argv[2]) : 10;
  if (argc > 3 || threads < 1 || rounds < 1) {
    fmt::print(stderr, "usage: gemm_peers [threads] [rounds]\n");
    return 2;
  }
  if (std::getenv("OPENBLAS_CORETYPE") == nullptr) {
    setenv("OPENBLAS_CORETYPE", __builtin_cpu_supports("avx512f") ? "SkylakeX" : "Haswell", 1);
    execv("/proc/self/exe", argv);
  }
  try {
    set_num_threads(threads);
    openblas_set_num_threads(threads);
    omp_set_num_threads(threads);
    NoGrad quiet;
    for (const Size& s : sizes()) contest(s, threads, rounds);
  } catch (const std::exception& e) {
    fmt::print(stderr, "gemm_peers: error: {}\n", e.what());
    return 1;
  }
  return 0;
}
