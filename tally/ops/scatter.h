// Numbers put to, or added at, places along an axis, with gradients: the reverse of gather. Where an index comes more
// than once, numbers are taken in its order on every device, so the last one stays and sums have one value. Indices are
// i32 or i64; one outside its axis, below 0 included, is an IndexError. Functions with a _ change their tensor.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// y = x, then y[.., index[.., j, ..], ..] = src[.., j, ..] with j on `axis`. index is no larger than src on any axis
// and than x on the others; the end of src beyond index is not used. x and src have one dtype.
Tensor scatter(const Tensor& x, int axis, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, int axis, const Tensor& index, double value);
Tensor& scatter_(Tensor& x, int axis, const Tensor& index, const Tensor& src);
Tensor& scatter_(Tensor& x, int axis, const Tensor& index, double value);
// += in place of =; sums of narrow floats are made in f32 and rounded once.
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& src);
Tensor& scatter_add_(Tensor& x, int axis, const Tensor& index, const Tensor& src);

// y = x, then y[.., ids[j], ..] += alpha * source[.., j, ..]: ids (n), source x's sizes with n on `axis`.
Tensor index_add(const Tensor& x, int axis, const Tensor& ids, const Tensor& source, double alpha = 1);
Tensor& index_add_(Tensor& x, int axis, const Tensor& ids, const Tensor& source, double alpha = 1);

// (.., classes) i64 with a 1 at each id. classes = -1: the largest id and one more, which has to be read.
Tensor one_hot(const Tensor& ids, int64_t classes = -1);

// Not recorded. out[.., index.., ..] = or += src of one rank: views as ScatterArgs and GatherBackwardArgs take them,
// index in range.
void scatter_views(const Tensor& out, int axis, const Tensor& index, const Tensor& src, bool add);

// What an op that changes x in place asks first: refuses a leaf that requires a gradient and a view that shows one
// number at several places. Counts the change.
void begin_change(const char* op, const Tensor& x);

}  // namespace tally
