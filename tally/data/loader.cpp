// The window formulas and their range checks.
#include "tally/data/loader.h"

#include <algorithm>
#include <vector>

#include "tally/base/error.h"
#include "tally/base/rng.h"
#include "tally/data/permutation.h"

namespace tally {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 31;  // products of three sizes are checked below

void check_sizes(int64_t batch, int64_t context) {
  if (batch < 1 || batch > kMostRows) fail("batch is {}; it must be at least 1", batch);
  if (context < 1 || context > kMostRows) fail("context is {}; it must be at least 1", context);
}

void check_window(int64_t n_tokens, int64_t context) {
  if (n_tokens <= context)
    fail("the data holds {} tokens; a window of context {} needs {}: give more text or a smaller context", n_tokens,
         context, context + 1);
}

template <class F>
void fill_rows(const TokenSource& source, int64_t rows, int64_t context, int32_t* inputs, int32_t* targets,
               const F& start) {
  std::vector<int64_t> starts(static_cast<size_t>(rows));
  for (int64_t b = 0; b < rows; ++b) starts[static_cast<size_t>(b)] = start(b);
  fill_windows(source, starts.data(), rows, context, inputs, targets);
}

}  // namespace

void fill_windows(const TokenSource& source, const int64_t* starts, int64_t batch, int64_t context, int32_t* inputs,
                  int32_t* targets) {
  std::vector<int32_t> window(static_cast<size_t>(context) + 1);
  for (int64_t b = 0; b < batch; ++b) {
    source.read(starts[b], context + 1, window.data());
    std::copy_n(window.begin(), context, inputs + b * context);
    std::copy_n(window.begin() + 1, context, targets + b * context);
  }
}

RandomWindows::RandomWindows(uint64_t seed, int64_t n_tokens, int64_t batch, int64_t context)
    : seed_(seed), n_tokens_(n_tokens), batch_(batch), context_(context) {
  check_sizes(batch, context);
  check_window(n_tokens, context);
}

int64_t RandomWindows::start(int64_t step, int64_t row) const {
  const uint64_t index = static_cast<uint64_t>(step) * static_cast<uint64_t>(batch_) + static_cast<uint64_t>(row);
  return static_cast<int64_t>(random_below(seed_, static_cast<uint64_t>(RandomStream::kData), index,
                                           static_cast<uint64_t>(n_tokens_ - context_)));
}

void RandomWindows::fill(const TokenSource& source, int64_t step, int32_t* inputs, int32_t* targets) const {
  fill_rows(source, batch_, context_, inputs, targets, [&](int64_t b) { return start(step, b); });
}

EpochWindows::EpochWindows(uint64_t seed, int64_t n_tokens, int64_t batch, int64_t context, bool shuffle)
    : seed_(seed), n_tokens_(n_tokens), batch_(batch), context_(context), windows_(0), shuffle_(shuffle) {
  check_sizes(batch, context);
  check_window(n_tokens, context);
  windows_ = shuffle ? std::max<int64_t>(1, n_tokens / context - 1) : (n_tokens - 1) / context;
}

int64_t EpochWindows::epoch(int64_t step, int64_t row) const { return (step * batch_ + row) / windows_; }

int64_t EpochWindows::start(int64_t step, int64_t row) const {
  const int64_t position = step * batch_ + row, epoch = position / windows_, window = position % windows_;
  if (!shuffle_) return window * context_;
  const auto draw = 2 * static_cast<uint64_t>(epoch), stream = static_cast<uint64_t>(RandomStream::kData);
  const Permutation order(random_u64(seed_, stream, draw), static_cast<uint64_t>(windows_));
  const int64_t cuts = std::min(context_, n_tokens_ - windows_ * context_);
  const auto cut = random_below(seed_, stream, draw + 1, static_cast<uint64_t>(cuts));
  return static_cast<int64_t>(cut) + static_cast<int64_t>(order(static_cast<uint64_t>(window))) * context_;
}

void EpochWindows::fill(const TokenSource& source, int64_t step, int32_t* inputs, int32_t* targets) const {
  fill_rows(source, batch_, context_, inputs, targets, [&](int64_t b) { return start(step, b); });
}

SequentialWindows::SequentialWindows(int64_t n_tokens, int64_t batch, int64_t context, int64_t ranks, int64_t rank)
    : batch_(batch), context_(context), ranks_(ranks), rank_(rank), full_steps_(0) {
  check_sizes(batch, context);
  if (ranks < 1 || rank < 0 || rank >= ranks) fail("rank {} of {} ranks is not possible", rank, ranks);
  int64_t step_tokens = 0;
  const bool fits = !__builtin_mul_overflow(ranks, batch * context, &step_tokens);
  full_steps_ = fits && n_tokens > 0 ? (n_tokens - 1) / step_tokens : 0;
}

int64_t SequentialWindows::start(int64_t step, int64_t row) const {
  TALLY_ASSERT(step >= 0 && step < full_steps_ && row >= 0 && row < batch_);
  return ((step * ranks_ + rank_) * batch_ + row) * context_;
}

void SequentialWindows::fill(const TokenSource& source, int64_t step, int32_t* inputs, int32_t* targets) const {
  fill_rows(source, batch_, context_, inputs, targets, [&](int64_t b) { return start(step, b); });
}

ValidationWindows::ValidationWindows(int64_t n_tokens, int64_t batch, int64_t context)
    : batch_(batch), context_(context), windows_(0) {
  check_sizes(batch, context);
  check_window(n_tokens, context);
  windows_ = (n_tokens - 1) / context;
}

int64_t ValidationWindows::rows(int64_t index) const {
  TALLY_ASSERT(index >= 0 && index < batches());
  return std::min(batch_, windows_ - index * batch_);
}

void ValidationWindows::fill(const TokenSource& source, int64_t index, int32_t* inputs, int32_t* targets) const {
  fill_rows(source, rows(index), context_, inputs, targets, [&](int64_t b) { return (index * batch_ + b) * context_; });
}

}  // namespace tally
