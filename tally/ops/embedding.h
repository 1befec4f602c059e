// Rows of a table by id, with gradient.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// ids (...) i32 or i64, table (V, d) -> (..., d). An id outside [0, V), negative ones included, is an Error. The
// gradient of each row of the table is summed in f32 in the order of positions and rounded once, so it does not depend
// on the thread count.
Tensor embedding(const Tensor& ids, const Tensor& table);

// The same of a table of `rows` rows that pack_weight() packed, a tied head's. Not recorded.
Tensor embedding_packed(const Tensor& ids, const Tensor& packed, int64_t rows);

}  // namespace tally
