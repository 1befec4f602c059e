// Batches as the course draws them: rows at random places of one sequence of token ids.
#pragma once

#include "tally/base/generator.h"
#include "tally/core/tensor.h"
#include "tally/data/tokens.h"

namespace tally {

// (batch_size, sequence_length) i32 on `device`; each row is a run of the data that begins at a place of its own, drawn
// with replacement from the generator, so any from 0 to source.size() - sequence_length. With `targets` given, that
// gets the ids one to the right of every id, and rows begin one earlier at most. Goes through page-locked memory to a
// card. Throws Error when the data is shorter than a row.
Tensor get_batch(const TokenSource& source, int64_t batch_size, int64_t sequence_length, Device device = kCpu,
                 Generator& generator = default_generator(), Tensor* targets = nullptr);

}  // namespace tally
