// Depthwise convolutions on the CPU: a row of the result at a time, in blocks that stay in the first cache while the
// taps are added one after the other. The gradient of a weight is summed in 32 interleaved parts, joined in a tree.
#include "tally/ops/conv_kernels.h"
#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int kSumParts = 32;

TALLY_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
TALLY_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
TALLY_INLINE int64_t grain_of(int64_t work) { return work < kGrainElements ? kGrainElements / (work + 1) + 1 : 1; }

// Row (n, channel, line) of a view of rank 4.
template <class T>
TALLY_INLINE T* row_at(const View& v, int64_t n, int64_t channel, int64_t line) {
  return v.ptr<T>() + n * v.stride.v[0] + channel * v.stride.v[1] + line * v.stride.v[2];
}

template <class T>
void forward(const ConvDepthwiseArgs& a) {
  using F = Compute<T>;
  const ConvAxis h = conv_axis(a.how, a.w.size, 0), w = conv_axis(a.how, a.w.size, 1);
  const Dims& size = a.y.size;
  const int64_t each = size.v[1] / a.x.size.v[1], lines = size.v[2], width = size.v[3];
  const int64_t x_step = a.x.stride.v[3] * w.stride, y_step = a.y.stride.v[3];
  parallel_for(size.v[0] * size.v[1] * lines, grain_of(width * h.taps * w.taps), [&](int64_t begin, int64_t end) {
    alignas(64) F sum[kBlock];
    for (int64_t row = begin; row < end; ++row) {
      const int64_t line = row % lines, o = row / lines % size.v[1], n = row / lines / size.v[1];
      const F bias = a.has_bias ? load_one(a.bias.ptr<const T>() + o * a.bias.stride.v[0]) : F{};
      T* y = row_at<T>(a.y, n, o, line);
      for (int64_t start = 0; start < width; start += kBlock) {
        const int64_t m = smaller(kBlock, width - start);
        for (int64_t q = 0; q < m; ++q) sum[q] = 0;
        for (int64_t i = 0; i < h.taps; ++i) {
          const int64_t from = h.place(line, i);
          if (from < 0 || from >= a.x.size.v[2]) continue;
          const T* x = row_at<const T>(a.x, n, o / each, from);
          for (int64_t j = 0; j < w.taps; ++j) {
            const int64_t first = larger(w.first(j), start) - start,
                          last = smaller(w.end(j, a.x.size.v[3], width), start + m) - start;
            if (first >= last) continue;
            const F weight =
                load_one(a.w.ptr<const T>() + o * a.w.stride.v[0] + i * a.w.stride.v[1] + j * a.w.stride.v[2]);
            const T* p = x + w.place(start, j) * a.x.stride.v[3];
            if (x_step == 1) {
              for (int64_t q = first; q < last; ++q) sum[q] += weight * load_one(p + q);
            } else {
              for (int64_t q = first; q < last; ++q) sum[q] += weight * load_one(p + q * x_step);
            }
          }
        }
        for (int64_t q = 0; q < m; ++q) store_one(y + (start + q) * y_step, sum[q] + bias);
      }
    }
  });
}

template <class T>
void input_gradient(const ConvDepthwiseInputArgs& a) {
  using F = Compute<T>;
  const ConvAxis h = conv_axis(a.how, a.w.size, 0), w = conv_axis(a.how, a.w.size, 1);
  const Dims& size = a.dx.size;
  const int64_t each = size.v[1] == 0 ? 1 : a.grad.size.v[1] / size.v[1], lines = size.v[2], width = size.v[3];
  const int64_t g_step = a.grad.stride.v[3], dx_step = a.dx.stride.v[3];
  parallel_for(
      size.v[0] * size.v[1] * lines, grain_of(width * each * h.taps * w.taps), [&](int64_t begin, int64_t end) {
        alignas(64) F sum[kBlock];
        for (int64_t row = begin; row < end; ++row) {
          const int64_t line = row % lines, c = row / lines % size.v[1], n = row / lines / size.v[1];
          T* dx = row_at<T>(a.dx, n, c, line);
          for (int64_t start = 0; start < width; start += kBlock) {
            const int64_t m = smaller(kBlock, width - start);
            for (int64_t q = 0; q < m; ++q) sum[q] = 0;
            for (int64_t o = c * each; o < (c + 1) * each; ++o)
              for (int64_t i = 0; i < h.taps; ++i) {
                const int64_t above = line + h.padding - i * h.dilation;
                if (above < 0 || above % h.stride != 0 || above / h.stride >= a.grad.size.v[2]) continue;
                const T* g = row_at<const T>(a.grad, n, o, above / h.stride);
                for (int64_t j = 0; j < w.taps; ++j) {
                  // outputs q whose place q * stride + shift lies in the block
                  const int64_t shift = w.place(0, j) - start;
                  const int64_t first = shift >= 0 ? 0 : (w.stride - 1 - shift) / w.stride;
                  const int64_t last =
                      smaller(a.grad.size.v[3], m - 1 - shift < 0 ? 0 : (m - 1 - shift) / w.stride + 1);
                  const F weight =
                      load_one(a.w.ptr<const T>() + o * a.w.stride.v[0] + i * a.w.stride.v[1] + j * a.w.stride.v[2]);
                  if (w.stride == 1 && g_step == 1) {
                    F* to = sum + shift;
                    for (int64_t q = first; q < last; ++q) to[q] += weight * load_one(g + q);
                  } else {
                    for (int64_t q = first; q < last; ++q)
                      sum[q * w.stride + shift] += weight * load_one(g + q * g_step);
                  }
                }
              }
            for (int64_t q = 0; q < m; ++q) store_one(dx + (start + q) * dx_step, sum[q]);
          }
        }
      });
}

// Adds the products of two rows to the parts, element k to part k mod kSumParts.
template <class T, class F>
TALLY_INLINE void add_products(const T* g, int64_t g_step, const T* x, int64_t x_step, int64_t n,
                               F (&part)[kSumParts]) {
  int64_t k = 0;
  if (g_step == 1 && x_step == 1) {
    for (; k + kSumParts <= n; k += kSumParts)
      for (int l = 0; l < kSumParts; ++l) part[l] += load_one(g + k + l) * load_one(x + k + l);
  }
  for (; k < n; ++k) part[k % kSumParts] += load_one(g + k * g_step) * load_one(x + k * x_step);
}

template <class T>
void weight_gradient(const ConvDepthwiseWeightArgs& a) {
  using F = Compute<T>;
  const ConvAxis h = conv_axis(a.how, a.dw.size, 0), w = conv_axis(a.how, a.dw.size, 1);
  const Dims& size = a.grad.size;
  const int64_t taps = h.taps * w.taps, each = a.x.size.v[1] == 0 ? 1 : size.v[1] / a.x.size.v[1];
  parallel_for(size.v[1] * taps, grain_of(size.v[0] * size.v[2] * size.v[3]), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t o = task / taps, i = task % taps / w.taps, j = task % w.taps;
      alignas(64) F part[kSumParts] = {};
      const int64_t first = w.first(j), n = w.end(j, a.x.size.v[3], size.v[3]) - first;
      for (int64_t image = 0; image < size.v[0] && n > 0; ++image)
        for (int64_t line = 0; line < size.v[2]; ++line) {
          const int64_t from = h.place(line, i);
          if (from < 0 || from >= a.x.size.v[2]) continue;
          add_products(row_at<const T>(a.grad, image, o, line) + first * a.grad.stride.v[3], a.grad.stride.v[3],
                       row_at<const T>(a.x, image, o / each, from) + w.place(first, j) * a.x.stride.v[3],
                       a.x.stride.v[3] * w.stride, n, part);
        }
      for (int l = kSumParts / 2; l > 0; l /= 2)
        for (int k = 0; k < l; ++k) part[k] += part[k + l];
      a.dw.ptr<F>()[o * a.dw.stride.v[0] + i * a.dw.stride.v[1] + j * a.dw.stride.v[2]] = part[0];
    }
  });
}

}  // namespace

void conv_depthwise(const ConvDepthwiseArgs& a) {
  if (a.y.numel() == 0) return;
  with_float(a.y.dtype, [&](auto tag) { forward<decltype(tag)>(a); });
}

void conv_depthwise_input(const ConvDepthwiseInputArgs& a) {
  if (a.dx.numel() == 0) return;
  with_float(a.dx.dtype, [&](auto tag) { input_gradient<decltype(tag)>(a); });
}

void conv_depthwise_weight(const ConvDepthwiseWeightArgs& a) {
  if (a.dw.numel() == 0) return;
  with_float(a.x.dtype, [&](auto tag) { weight_gradient<decltype(tag)>(a); });
}

}  // namespace tally::TALLY_ISA
