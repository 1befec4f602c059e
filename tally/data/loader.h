// Which tokens make a batch. Every plan here is a formula of the step, so resuming needs no state: batch `step` is the
// same whether or not the steps before it ran. A window at `start` has inputs [start, start + context) and targets one
// to the right, so start + context must be a token too.
#pragma once

#include <cstdint>

#include "tally/data/tokens.h"

namespace tally {

// Fills inputs and targets, both (batch, context) row-major, from windows that begin at starts[0 .. batch).
void fill_windows(const TokenSource& source, const int64_t* starts, int64_t batch, int64_t context, int32_t* inputs,
                  int32_t* targets);

// Windows at random places, drawn independently (with replacement) from the counter-based generator.
class RandomWindows {
 public:
  // Throws Error when n_tokens < context + 1 or a size is below 1.
  RandomWindows(uint64_t seed, int64_t n_tokens, int64_t batch, int64_t context);
  int64_t start(int64_t step, int64_t row) const;  // in [0, n_tokens - context)
  void fill(const TokenSource& source, int64_t step, int32_t* inputs, int32_t* targets) const;

 private:
  uint64_t seed_;
  int64_t n_tokens_, batch_, context_;
};

// Every window of the data once an epoch, then again, in order or shuffled. Position p of the run (p = step * batch +
// row) is window p mod W of epoch p / W. The shards count as one sequence, in the order of their names, so a window may
// begin in one and end in the next, as documents do.
//   in order:  W = (n_tokens - 1) / context windows, cut from the first token on.
//   shuffled:  by a permutation whose key is of the seed and the epoch (permutation.h); W = n_tokens / context - 1
//              windows, cut from a place of the epoch's own in [0, context), so that an epoch cuts the text elsewhere
//              than the last and only up to two windows' worth of tokens at the two ends is left out, others each time.
class EpochWindows {
 public:
  // Throws Error when n_tokens < context + 1 or a size is below 1.
  EpochWindows(uint64_t seed, int64_t n_tokens, int64_t batch, int64_t context, bool shuffle);
  int64_t windows() const { return windows_; }     // of an epoch
  int64_t epoch(int64_t step, int64_t row) const;  // from 0
  int64_t start(int64_t step, int64_t row) const;
  void fill(const TokenSource& source, int64_t step, int32_t* inputs, int32_t* targets) const;

 private:
  uint64_t seed_;
  int64_t n_tokens_, batch_, context_, windows_;
  bool shuffle_;
};

// Windows one after the other without overlap, the ranks side by side: in a step rank r has the rows
// [r * batch, (r + 1) * batch). Only full steps count, so all ranks take the same number of them and turn to the next
// data together; ranks * batch * context + 1 tokens must fit for the first.
class SequentialWindows {
 public:
  SequentialWindows(int64_t n_tokens, int64_t batch, int64_t context, int64_t ranks = 1, int64_t rank = 0);
  int64_t full_steps() const { return full_steps_; }  // floor((n_tokens - 1) / (ranks * batch * context))
  int64_t start(int64_t step, int64_t row) const;     // step in [0, full_steps())
  void fill(const TokenSource& source, int64_t step, int32_t* inputs, int32_t* targets) const;

 private:
  int64_t batch_, context_, ranks_, rank_, full_steps_;
};

// All windows of `context` that do not overlap, in order, for validation: the last batch may be smaller, and the
// (n_tokens - 1) mod context targets behind the last window are left out.
class ValidationWindows {
 public:
  // Throws Error when there is no window.
  ValidationWindows(int64_t n_tokens, int64_t batch, int64_t context);
  int64_t windows() const { return windows_; }
  int64_t batches() const { return (windows_ + batch_ - 1) / batch_; }
  int64_t rows(int64_t index) const;  // of batch `index`
  void fill(const TokenSource& source, int64_t index, int32_t* inputs, int32_t* targets) const;

 private:
  int64_t batch_, context_, windows_;
};

}  // namespace tally
