// Kernels one by one against what the same process reaches now: cases of realistic sizes, run in rounds in which the
// yardsticks (multiply-adds in registers, a copy of as many bytes) take their turn, medians over the rounds.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tally/core/tensor.h"
#include "tally/train/profile.h"

namespace tally {

// A case once its tensors are there.
struct OpCall {
  std::vector<std::pair<std::string, Tensor>> inputs;  // by name
  std::function<Tensor()> forward;
  bool gradient = true;  // has a backward to time
};

struct OpCase {
  std::string op, shape;         // "rms_norm", "64 x 4096"
  std::string size;              // of kBenchSizes
  std::function<OpCall()> make;  // takes the memory
};

// cache: 1 MiB tensors of rows of 4096; memory: tensors of the size of the last cache; product: matrix products and
// attention, which are bound by arithmetic or, with few rows, by reading the weight; large: on a card only, the tensors
// of large models (up to 25 GB, and 8 GiB for the yardstick).
constexpr const char* kBenchSizes[] = {"cache", "memory", "product", "large"};
std::vector<OpCase> op_cases();

struct BenchBudget {
  double seconds = 0.3;  // of a case; rounds go on until they are spent
  int64_t rounds = 5;    // at least
  bool gradients = true;
};

// A kernel's share of a case.
struct OpResult {
  std::string op, phase, name, shape, size;  // name: of the case
  double seconds = 0;                        // in its launches of one call
  double call_seconds = 0;                   // of the whole forward call of the case, allocation and tape included
  int64_t launches = 0, rounds = 0;
  Cost cost;
  double peak_flops = 0, copy_bytes = 0;  // the yardsticks, a second
  double roof_seconds = 0;
  double share_of_roof() const { return seconds > 0 ? roof_seconds / seconds : 0; }
};

// Where cases run and what their floats are: f32 on the CPU unless set, for the whole process.
struct BenchPlace {
  Device device = kCpu;
  DType dtype = DType::kF32;
};
void set_bench_place(const BenchPlace& place);
const BenchPlace& bench_place();

std::vector<OpResult> bench_op(const OpCase& c, const BenchBudget& budget);

// The lines of a table, then the three kernels that are furthest from the roof.
std::string ops_text(const std::vector<OpResult>& results);
std::vector<OpResult> worst_ops(const std::vector<OpResult>& results, size_t count);
Json op_json(const OpResult& result);

// Numbers in [-1/2, 1/2) at the place of the bench, the same for the same arguments; large tensors repeat the first
// mebibyte, ids too. Of the bench's dtype unless one is given.
Tensor bench_values(const Dims& size, uint64_t seed, Category category = Category::kActivation);
Tensor bench_values(const Dims& size, uint64_t seed, Category category, DType dtype);
Tensor bench_ids(const Dims& size, int64_t limit, uint64_t seed);

// Seconds of a read of `buffer` (f32) from one end to the other.
class ReadProbe {
 public:
  explicit ReadProbe(int64_t bytes, Device device = kCpu);
  double seconds();  // of one pass
  double bytes() const { return static_cast<double>(buffer_.numel() * 4); }

 private:
  Tensor buffer_, out_;
};

}  // namespace tally
