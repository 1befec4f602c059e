// Index expressions (indexing.h) read: what they mean for a tensor of some sizes. For indexing.cpp only.
#pragma once

#include <vector>

#include "tally/ops/indexing.h"

namespace tally {

// A view of some storage in numbers.
struct Frame {
  Dims size, stride;
  int64_t offset = 0;
};
inline Frame frame_of(const Tensor& x) { return {x.sizes(), x.strides(), x.storage_offset()}; }
inline Frame dense_frame(const Dims& size) { return {size, contiguous_strides(size), 0}; }
inline Tensor seen(const Tensor& x, const Frame& f) { return x.alias(f.size, f.stride, f.offset); }

// Ids for one axis of the basic view.
struct IndexArray {
  int axis;
  Tensor ids;
};
// A step of the basic view.
struct IndexStep {
  Index::Kind kind;
  int64_t begin = 0, step = 1, length = 0;  // kInt: begin; kSlice: all three
};
// The steps of the basic view, for every axis of x and new ones, and the arrays that take elements of it.
struct Expression {
  std::vector<IndexStep> steps;
  std::vector<IndexArray> arrays;
};
Expression parse_index(const Tensor& x, const std::vector<Index>& at);
// The basic view of a frame.
Frame basic_view(const Frame& x, const std::vector<IndexStep>& steps);

// bool, or u8 as PyTorch still takes it.
inline bool is_mask(const Tensor& t) { return t.dtype() == DType::kBool || t.dtype() == DType::kU8; }
// Appends; refuses more than kMaxRank axes.
void push_axis(Dims& d, int64_t n);

}  // namespace tally
