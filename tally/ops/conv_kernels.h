// Depthwise convolutions: each output channel sees one input channel. x (N, C, H, W), w (O, kh, kw) with O a multiple
// of C, y (N, O, Ho, Wo), any strides; how: stride, padding and dilation of H and W, one after the other. y's element
// (n, o, p, q) sees x's (n, o / (O / C), p * stride - padding + i * dilation, ..) for each tap (i, j) where there is
// one. Sums are made in f32 (f64 for f64). Counted: 2 matmul FLOPs a pair of tap and element.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// One axis of a convolution.
struct ConvAxis {
  int64_t stride, padding, dilation, taps;
  TALLY_INLINE int64_t first(int64_t tap) const {  // the first output that sees an element by this tap
    const int64_t t = padding - tap * dilation;
    return t <= 0 ? 0 : (t + stride - 1) / stride;
  }
  TALLY_INLINE int64_t end(int64_t tap, int64_t in, int64_t out) const {  // the one behind the last
    const int64_t t = in - 1 + padding - tap * dilation;
    const int64_t n = t < 0 ? 0 : t / stride + 1;
    return n < out ? n : out;
  }
  TALLY_INLINE int64_t place(int64_t out, int64_t tap) const { return out * stride - padding + tap * dilation; }
  TALLY_INLINE int64_t pairs(int64_t in, int64_t out) const {
    int64_t n = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t a = first(tap), b = end(tap, in, out);
      n += a < b ? b - a : 0;
    }
    return n;
  }
};
TALLY_INLINE constexpr ConvAxis conv_axis(const Dims& how, const Dims& w, int i) {
  return {how.v[i], how.v[2 + i], how.v[4 + i], w.v[w.rank - 2 + i]};
}
// Pairs of a tap and an element that it reads, for one channel of one image.
TALLY_INLINE int64_t conv_pairs(const Dims& how, const Dims& w, const Dims& x, const Dims& y) {
  return conv_axis(how, w, 0).pairs(x.v[2], y.v[2]) * conv_axis(how, w, 1).pairs(x.v[3], y.v[3]);
}

struct ConvDepthwiseArgs {
  static constexpr const char* name = "conv_depthwise";
  View x, w, bias, y;
  Dims how;
  bool has_bias;  // bias.data is null on meta even where there is one
  Device device() const { return y.device; }
  Cost cost() const {
    const int64_t channels = y.size[0] * y.size[1];
    return {2 * channels * conv_pairs(how, w.size, x.size, y.size), has_bias ? y.numel() : 0,
            x.bytes() + w.bytes() + (has_bias ? bias.bytes() : 0), y.bytes(), 0};
  }
};

// dx = the sum over what each element was seen by.
struct ConvDepthwiseInputArgs {
  static constexpr const char* name = "conv_depthwise_input";
  View grad, w, dx;
  Dims how;
  Device device() const { return dx.device; }
  Cost cost() const {
    const int64_t channels = grad.size[0] * grad.size[1];
    return {2 * channels * conv_pairs(how, w.size, dx.size, grad.size), 0, grad.bytes() + w.bytes(), dx.bytes(), 0};
  }
};

// dw (O, kh, kw), f32 (f64 for f64): the sum over all images and places, in a fixed order.
struct ConvDepthwiseWeightArgs {
  static constexpr const char* name = "conv_depthwise_weight";
  View grad, x, dw;
  Dims how;
  Device device() const { return dw.device; }
  Cost cost() const {
    const int64_t channels = grad.size[0] * grad.size[1];
    return {2 * channels * conv_pairs(how, dw.size, x.size, grad.size), 0, grad.bytes() + x.bytes(), dw.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void conv_depthwise(const ConvDepthwiseArgs&);
void conv_depthwise_input(const ConvDepthwiseInputArgs&);
void conv_depthwise_weight(const ConvDepthwiseWeightArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
