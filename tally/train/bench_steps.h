// Whole steps against what they could take: training steps of a configuration on random ids, and decoding one sequence
// against the time in which the machine reads what a token reads.
#pragma once

#include <string>
#include <vector>

#include "tally/base/plot.h"
#include "tally/train/plan.h"
#include "tally/train/profile.h"

namespace tally {

struct StepBench {
  Plan plan;
  Profile profile;          // means of the steps after the first
  double step_seconds = 0;  // median
  CategoryBytes peak{};     // live blocks at the highest peak of a step
  int64_t tokens = 0;       // of a step
  double tokens_per_second() const { return static_cast<double>(tokens) / step_seconds; }
  double flops_per_second() const;  // of matrix products, as MFU counts them
};

// Steps for about `seconds`, at least three after the first. hardware must outlive the result.
StepBench bench_step(const RunConfig& config, const Hardware& hardware, double seconds);
std::string step_text(const RunConfig& config, const StepBench& bench);
Json step_json(const StepBench& bench);

// Every op and phase of the steps under the roof of `hardware`; the slope is its highest bandwidth, that of copies in
// cache, so that no op can lie above it for its data alone.
Roofline roofline_of(const std::string& title, const StepBench& bench);

struct DecodeBench {
  std::string dtype;  // of weights, activations and cache
  int64_t parameters = 0, tokens = 0;
  double token_seconds = 0;     // median
  double bytes_read = 0;        // by the launches of a token, mean
  double bytes_per_second = 0;  // a read of as many bytes, median of the same rounds
  double tokens_per_second() const { return 1 / token_seconds; }
  double limit() const { return bytes_per_second / bytes_read; }  // tokens a second
};

struct DecodeOptions {
  std::string dtype = "f32";
  int64_t prompt = 16, tokens = 64;
  double seconds = 3;
  Device device = kCpu;
};

// Greedy decoding of random weights, one sequence; the prompt's own time is left out. Throws Error when prompt and
// tokens do not fit the context.
DecodeBench bench_decode(const ModelConfig& config, const DecodeOptions& options);
std::string decode_text(const std::vector<DecodeBench>& benches);
Json decode_json(const DecodeBench& bench);

}  // namespace tally
