// Which of cuBLASLt's algorithms a product takes. The first time it is seen the heuristic's first few are timed on the
// card, with the operands of the call and in turn, and the median of the rounds decides; the heuristic's own first
// stays unless another is 2 % faster. The choice is kept on disk (matmul_choices.h), so that later runs on the machine
// compute the same bits: two algorithms may sum in different orders. No search while the stream is captured into a
// graph, or when TALLY_MATMUL_SEARCH=0; none for products so small that launching them takes longer.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tally/core/device.h"
#include "tally/ops/matmul_choices.h"
#include "tally/ops/matmul_lt_cuda.h"

namespace tally::cuda {

namespace {

constexpr int kCandidates = 12;
constexpr double kWorthwhile = 1 << 24;  // FLOPs; launching takes longer than fewer
constexpr double kBudget = 0.03;         // seconds of the rounds of a product, about
constexpr double kNoticeable = 0.98;     // of the first's time: less than this is taken
constexpr double kShortest = 50e-6;      // calls are repeated until a measurement is as long
constexpr int kFewestRounds = 3, kMostRounds = 7;
constexpr uint32_t kSchemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // split sums are joined in order, in f32

using Algorithm = cublasLtMatmulAlgo_t;
static_assert(sizeof(Algorithm) == sizeof(MatmulChoices::Algorithm));

cudaStream_t stream_of(const LtLibrary& library) {
  return static_cast<cudaStream_t>(detail::device_stream(library.device));
}

std::vector<Algorithm> proposed(const LtLibrary& library, const LtProduct& x, int most) {
  cublasLtMatmulPreference_t wish = nullptr;
  check_lt("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&wish));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    cublasLtMatmulPreferenceSetAttribute(wish, what, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kLtWorkspace));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kSchemes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, x.alignment[0]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, x.alignment[1]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, x.alignment[2]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, x.alignment[2]);
  cublasLtMatmulHeuristicResult_t results[kCandidates]{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library.handle, x.what, x.first, x.second, x.result,
                                                               x.result, wish, most, results, &found);
  cublasLtMatmulPreferenceDestroy(wish);
  std::vector<Algorithm> all;
  if (status == CUBLAS_STATUS_SUCCESS)
    for (int i = 0; i < found; ++i)
      if (results[i].state == CUBLAS_STATUS_SUCCESS) all.push_back(results[i].algo);
  return all;
}

// A stored algorithm may be of a file that was damaged or copied: it must fit the product, the workspace and the
// schemes.
bool usable(const LtLibrary& library, const LtProduct& x, const Algorithm& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  if (cublasLtMatmulAlgoCheck(library.handle, x.what, x.first, x.second, x.result, x.result, &algorithm, &result) !=
          CUBLAS_STATUS_SUCCESS ||
      result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > static_cast<size_t>(kLtWorkspace))
    return false;
  uint32_t scheme = 0;
  size_t written = 0;
  return cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme,
                                              &written) == CUBLAS_STATUS_SUCCESS &&
         (scheme & ~kSchemes) == 0;
}

bool captured(const LtLibrary& library) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  detail::check_cuda("cudaStreamIsCapturing", cudaStreamIsCapturing(stream_of(library), &status));
  return status != cudaStreamCaptureStatusNone;
}

// Where the timed products write: c itself when they do not add to it, since the true product comes last; else memory
// of the same layout, so that c keeps its value. Null when there is none left.
class Place {
 public:
  Place(const LtLibrary& library, const MatmulArgs& args) : device_(library.device) {
    const View& c = args.c;
    if (!args.accumulate) {
      out_ = c.data;
      return;
    }
    const int64_t last = (c.size.v[0] - 1) * c.stride.v[0] + (c.size.v[1] - 1) * c.stride.v[1] + c.size.v[2];
    scratch_ = out_ = detail::device_take(device_, last * item_size(c.dtype));
  }
  ~Place() {
    if (scratch_ != nullptr) detail::device_give(device_, scratch_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  void* get() const { return out_; }

 private:
  int device_;
  void *out_ = nullptr, *scratch_ = nullptr;
};

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

// Runs candidates and takes their time.
class Contest {
 public:
  Contest(const LtLibrary& library, const LtProduct& x, const MatmulArgs& args, void* out)
      : library_(library), x_(x), args_(args), out_(out), device_(args.c.device) {}

  // False: the library refuses the algorithm after all.
  bool run(const Algorithm& a) const { return run_lt(library_, x_, args_, a, out_) == CUBLAS_STATUS_SUCCESS; }

  // The index of the algorithm to take; only the first few stay in `all` where a call takes long.
  size_t winner(std::vector<Algorithm>& all) const {
    if (!run(all[0])) return 0;  // loads its code; the true call will say what is wrong
    const double first = std::max(seconds_of({all[0]}, 1, 1)[0][0], 1e-7), runs = kBudget / first;
    const double most = std::clamp(runs / 4, 3.0, double{kCandidates});
    all.resize(std::min(all.size(), static_cast<size_t>(most)));
    // Loads their code too. One that is refused makes place for the first again.
    for (Algorithm& a : all)
      if (!run(a)) a = all[0];
    const int calls = static_cast<int>(std::clamp(kShortest / first, 1.0, 20.0));
    const double round = static_cast<double>(all.size()) * calls;
    const int rounds = std::clamp(static_cast<int>(runs / round), kFewestRounds, kMostRounds);
    const std::vector<std::vector<double>> times = seconds_of(all, rounds, calls);
    size_t best = 0;
    double least = median(times[0]) * kNoticeable;
    for (size_t i = 1; i < all.size(); ++i)
      if (const double m = median(times[i]); m < least) best = i, least = m;
    return best;
  }

 private:
  // Of every algorithm, in rounds: seconds of one of `calls`. All is given to the card before anything is waited for,
  // so that it never waits for the host.
  std::vector<std::vector<double>> seconds_of(const std::vector<Algorithm>& all, int rounds, int calls) const {
    std::vector<Moment> moments;
    moments.emplace_back(device_);
    for (int r = 0; r < rounds; ++r)
      for (const Algorithm& a : all) {
        for (int i = 0; i < calls; ++i) run(a);
        moments.emplace_back(device_);
      }
    synchronize(device_);
    std::vector<std::vector<double>> seconds(all.size());
    for (size_t at = 0; at + 1 < moments.size(); ++at)
      seconds[at % all.size()].push_back(moments[at + 1].seconds_since(moments[at]) / calls);
    return seconds;
  }

  const LtLibrary& library_;
  const LtProduct& x_;
  const MatmulArgs& args_;
  void* out_;
  Device device_;
};

// The file of the library's card; of the caller's lock.
MatmulChoices& choices_of(const LtLibrary& library) {
  static std::vector<std::unique_ptr<MatmulChoices>> all;
  const fs::path file = matmul_choices_path(library.card, cublasLtGetVersion());
  for (const auto& known : all)
    if (known->file() == file) return *known;
  return *all.emplace_back(std::make_unique<MatmulChoices>(file));
}

}  // namespace

void choose_lt(const LtLibrary& library, const MatmulArgs& args, const LtKey& key, LtProduct& x) {
  const double flops = 2.0 * static_cast<double>(args.c.numel()) * static_cast<double>(args.a.size.v[2]);
  const bool wanted = flops >= kWorthwhile && matmul_search_wanted();
  if (wanted)
    if (const auto stored = choices_of(library).find(key)) {
      std::memcpy(&x.algorithm, stored->data(), sizeof x.algorithm);
      x.found = usable(library, x, x.algorithm);
      if (x.found) return;
    }
  const bool search = wanted && !captured(library);
  std::vector<Algorithm> all = proposed(library, x, search ? kCandidates : 1);
  x.found = !all.empty();
  if (!x.found) return;
  x.algorithm = all[0];
  if (!search) return;
  if (all.size() > 1) {
    const Place place(library, args);
    if (place.get() == nullptr) return;
    x.algorithm = all[Contest(library, x, args, place.get()).winner(all)];
  }
  MatmulChoices::Algorithm kept;
  std::memcpy(kept.data(), &x.algorithm, sizeof x.algorithm);
  choices_of(library).keep(key, kept);
}

}  // namespace tally::cuda
