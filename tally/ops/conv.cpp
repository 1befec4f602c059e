// Four ways, from shapes and device only. One input channel a group: kernels (conv_kernels.h). One axis and many
// channels: a product a tap, y += W[tap] x[.., shifted], of views of x. Images of many channels at stride 1 on the CPU:
// the same of padded images, whose rows follow each other, into results as wide as these. Else windows are copied to
// columns, some images at a time (im2col: Chellapilla et al. 2006, "High performance convolutional neural networks for
// document processing"), for one product.
#include "tally/ops/conv.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/conv_kernels.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

// x (N, C, H, W), w (O, C / G, kh, kw), y (N, O, Ho, Wo): raw tensors, not recorded.
struct Conv {
  Tensor x, w, y;
  Dims how;
  int64_t groups = 1;

  ConvAxis axis(int i) const { return conv_axis(how, w.sizes(), i); }
  bool depthwise() const { return w.sizes()[1] == 1 && groups == x.sizes()[1]; }
  bool by_taps() const {  // deep enough that a tap is a product worth its launch
    return x.sizes()[2] == 1 && w.sizes()[2] == 1 && axis(0).padding == 0 && w.sizes()[1] >= 32;
  }
  bool by_wide_taps() const {  // at most an eighth of every product is thrown away
    return target_of(x.device()) == DeviceKind::kCpu && axis(0).stride == 1 && axis(1).stride == 1 &&
           w.sizes()[1] >= 32 && 8 * (x.sizes()[3] + 2 * axis(1).padding - y.sizes()[3]) <= y.sizes()[3];
  }
};

DType sums_of(DType t) { return t == DType::kF64 ? DType::kF64 : DType::kF32; }

// w as (O, kh, kw).
Tensor depthwise_weight(const Tensor& w) {
  return w.alias(Dims(w.sizes()[0], w.sizes()[2], w.sizes()[3]), Dims(w.strides()[0], w.strides()[2], w.strides()[3]),
                 w.storage_offset());
}

// (N, G, channels / G, columns) of a tensor whose channels are G groups, `offset` on, columns `step` apart.
Tensor in_groups(const Tensor& t, int64_t groups, int64_t columns, int64_t step, int64_t offset) {
  const int64_t channels = t.sizes()[1] / groups;
  return t.alias(Dims(t.sizes()[0], groups, channels, columns),
                 Dims(t.strides()[0], t.strides()[1] * channels, t.strides()[1], step), t.storage_offset() + offset);
}

// ---- a product a tap, H = 1

struct Tap {
  int64_t tap, first, count;  // outputs that see an element
};
std::vector<Tap> taps_of(const Conv& c) {
  const ConvAxis a = c.axis(1);
  std::vector<Tap> all;
  for (int64_t tap = 0; tap < a.taps; ++tap) {
    const int64_t first = a.first(tap), end = a.end(tap, c.x.sizes()[3], c.y.sizes()[3]);
    if (first < end) all.push_back({tap, first, end - first});
  }
  return all;
}
Tensor seen_by(const Conv& c, const Tensor& x, const Tap& t) {
  const int64_t step = x.strides()[3];
  return in_groups(x, c.groups, t.count, step * c.axis(1).stride, c.axis(1).place(t.first, t.tap) * step);
}
Tensor outputs_of(const Conv& c, const Tensor& y, const Tap& t) {
  return in_groups(y, c.groups, t.count, y.strides()[3], t.first * y.strides()[3]);
}
// (N, G, O / G, C / G), the same for every n.
Tensor weight_of(const Conv& c, const Tap& t) {
  const Dims &s = c.w.sizes(), &d = c.w.strides();
  return c.w.alias(Dims(c.x.sizes()[0], c.groups, s[0] / c.groups, s[1]), Dims(0, d[0] * (s[0] / c.groups), d[0], d[1]),
                   c.w.storage_offset() + t.tap * d[3]);
}
Tensor swapped(const Tensor& t) {
  NoGrad quiet;
  return transpose(t, -1, -2);
}
Tensor image(const Tensor& t, int64_t n) {
  NoGrad quiet;
  return slice(t.detach(), 0, n, n + 1);
}

// y holds the bias (or nothing yet) and gets the sum.
void taps_forward(const Conv& c, bool onto) {
  std::vector<Tap> taps = taps_of(c);
  // One that all outputs see comes first: it need not read y.
  std::stable_partition(taps.begin(), taps.end(), [&](const Tap& t) { return t.count == c.y.sizes()[3]; });
  if (!onto && (taps.empty() || taps[0].count != c.y.sizes()[3])) {
    Tensor y = c.y;
    fill_(y, 0.0);
    onto = true;
  }
  for (const Tap& t : taps) {
    matmul_batched_(outputs_of(c, c.y, t), weight_of(c, t), seen_by(c, c.x, t), onto);
    onto = true;
  }
}

void taps_input(const Conv& c, const Tensor& g, const Tensor& dx) {
  Tensor zeros = dx;
  fill_(zeros, 0.0);
  for (const Tap& t : taps_of(c))
    matmul_batched_(seen_by(c, dx, t), swapped(weight_of(c, t)), outputs_of(c, g, t), true);
}

// dw (taps, O, C / G).
void taps_weight(const Conv& c, const Tensor& g, const Tensor& dw) {
  Tensor zeros = dw;
  fill_(zeros, 0.0);
  for (const Tap& t : taps_of(c)) {
    const Dims &s = dw.sizes(), &d = dw.strides();
    const Tensor one =
        dw.alias(Dims(1, c.groups, s[1] / c.groups, s[2]), Dims(0, d[1] * (s[1] / c.groups), d[1], d[2]), t.tap * d[0]);
    for (int64_t n = 0; n < c.x.sizes()[0]; ++n)
      matmul_batched_(one, image(outputs_of(c, g, t), n), swapped(image(seen_by(c, c.x, t), n)), true);
  }
}

// ---- columns

// Images whose columns are in memory at a time.
int64_t images_at_once(const Conv& c) {
  const int64_t most = target_of(c.x.device()) == DeviceKind::kCuda ? int64_t{1} << 25 : int64_t{1} << 20;
  const int64_t one = c.w.sizes()[1] * c.groups * c.w.sizes()[2] * c.w.sizes()[3] * c.y.sizes()[2] * c.y.sizes()[3];
  return std::clamp<int64_t>(most / std::max<int64_t>(one, 1), 1, std::max<int64_t>(c.x.sizes()[0], 1));
}

Dims padded_size(const Conv& c, int64_t images) {
  const Dims& s = c.x.sizes();
  return {images, s[1], s[2] + 2 * c.axis(0).padding, s[3] + 2 * c.axis(1).padding};
}
// The images inside their padding.
Tensor inside(const Conv& c, const Tensor& padded) {
  Dims size = c.x.sizes();
  size[0] = padded.sizes()[0];
  return padded.alias(
      size, padded.strides(),
      padded.storage_offset() + c.axis(0).padding * padded.strides()[2] + c.axis(1).padding * padded.strides()[3]);
}
// (images, C, kh, kw, Ho, Wo): the windows of padded images; they overlap.
Tensor windows(const Conv& c, const Tensor& padded) {
  const ConvAxis h = c.axis(0), w = c.axis(1);
  const Dims& d = padded.strides();
  return padded.alias(Dims(padded.sizes()[0], padded.sizes()[1], h.taps, w.taps, c.y.sizes()[2], c.y.sizes()[3]),
                      Dims(d[0], d[1], d[2] * h.dilation, d[3] * w.dilation, d[2] * h.stride, d[3] * w.stride),
                      padded.storage_offset());
}
// (images, G, C / G * kh * kw, Ho * Wo) of contiguous columns, and the same seen as windows.
Tensor column_matrices(const Conv& c, const Tensor& columns, int64_t images) {
  const int64_t places = c.y.sizes()[2] * c.y.sizes()[3], deep = c.w.sizes()[1] * c.w.sizes()[2] * c.w.sizes()[3];
  const Dims size(images, c.groups, deep, places);
  return columns.alias(size, contiguous_strides(size), 0);
}
Tensor column_windows(const Conv& c, const Tensor& columns, int64_t images) {
  const Dims size(images, c.x.sizes()[1], c.w.sizes()[2], c.w.sizes()[3], c.y.sizes()[2], c.y.sizes()[3]);
  return columns.alias(size, contiguous_strides(size), 0);
}
Tensor some_images(const Tensor& t, int64_t first, int64_t count) {
  NoGrad quiet;
  return slice(t.detach(), 0, first, first + count);
}
Tensor workspace(const Dims& size, DType dtype, Device device) {
  return Tensor::empty(size, dtype, device, Category::kWorkspace);
}
int64_t column_count(const Conv& c, int64_t images) {
  return images * c.x.sizes()[1] * c.w.sizes()[2] * c.w.sizes()[3] * c.y.sizes()[2] * c.y.sizes()[3];
}
// (images, G, O / G, deep), the same for every image; w is contiguous.
Tensor weight_matrices(const Conv& c, const Tensor& w, int64_t images) {
  const int64_t deep = w.sizes()[1] * w.sizes()[2] * w.sizes()[3], rows = w.sizes()[0] / c.groups;
  return w.alias(Dims(images, c.groups, rows, deep), Dims(0, rows * deep, deep, 1), w.storage_offset());
}
// (images, G, O / G, Ho * Wo); y is contiguous.
Tensor output_matrices(const Conv& c, const Tensor& y) {
  const int64_t places = y.sizes()[2] * y.sizes()[3], rows = y.sizes()[1] / c.groups;
  const Dims size(y.sizes()[0], c.groups, rows, places);
  return y.alias(size, contiguous_strides(size), y.storage_offset());
}

// f(columns (images, G, deep, places), first image, images) for some images at a time.
template <class F>
void over_columns(const Conv& c, const F& f) {
  const int64_t all = c.x.sizes()[0], at_once = images_at_once(c);
  Tensor padded;
  const bool bare = c.axis(0).padding == 0 && c.axis(1).padding == 0;
  if (!bare) {
    padded = workspace(padded_size(c, at_once), c.x.dtype(), c.x.device());
    fill_(padded, 0.0);
  }
  const Tensor columns = workspace(Dims(column_count(c, at_once)), c.x.dtype(), c.x.device());
  for (int64_t first = 0; first < all; first += at_once) {
    const int64_t images = std::min(at_once, all - first);
    Tensor from = some_images(c.x, first, images);
    if (!bare) {
      const Tensor used = some_images(padded, 0, images);
      copy_(inside(c, used), from);
      from = used;
    }
    copy_(column_windows(c, columns, images), windows(c, from));
    f(column_matrices(c, columns, images), first, images);
  }
}

Tensor bias_of_channels(const Tensor& bias, const Dims& y) {
  return bias.alias(y, Dims(0, bias.strides()[0], 0, 0), bias.storage_offset());
}

// Images whose padded form and wide result are in memory at a time.
int64_t wide_images_at_once(const Conv& c) {
  const Dims padded = padded_size(c, 1);
  const int64_t one = padded.numel() + c.y.sizes()[1] * c.y.sizes()[2] * padded[3];
  return std::clamp<int64_t>((int64_t{1} << 19) / std::max<int64_t>(one, 1), 1, std::max<int64_t>(c.x.sizes()[0], 1));
}

// What stands in wide results between two rows of y is never read.
void wide_taps_forward(const Conv& c, const Tensor& bias) {
  NoGrad quiet;
  const int64_t all = c.x.sizes()[0], at_once = wide_images_at_once(c), groups = c.groups;
  const Dims size = padded_size(c, at_once), &w = c.w.sizes(), &d = c.w.strides(), &y = c.y.sizes();
  Tensor padded = workspace(size, c.x.dtype(), c.x.device());
  fill_(padded, 0.0);
  const Tensor wide = workspace(Dims(at_once, y[1], y[2], size[3]), sums_of(c.x.dtype()), c.x.device());
  const int64_t columns = (y[2] - 1) * size[3] + y[3];
  for (int64_t first = 0; first < all; first += at_once) {
    const int64_t images = std::min(at_once, all - first);
    const Tensor from = some_images(padded, 0, images), to = some_images(wide, 0, images);
    copy_(inside(c, from), some_images(c.x, first, images));
    if (bias.defined()) copy_(to, bias_of_channels(bias, to.sizes()));
    for (int64_t i = 0; i < w[2]; ++i)
      for (int64_t j = 0; j < w[3]; ++j) {
        const Tensor weight =
            c.w.alias(Dims(images, groups, w[0] / groups, w[1]), Dims(0, d[0] * (w[0] / groups), d[0], d[1]),
                      c.w.storage_offset() + i * d[2] + j * d[3]);
        matmul_batched_(in_groups(to, groups, columns, 1, 0), weight,
                        in_groups(from, groups, columns, 1, i * c.axis(0).dilation * size[3] + j * c.axis(1).dilation),
                        bias.defined() || i + j > 0);
      }
    copy_(some_images(c.y, first, images), slice(to, 3, 0, y[3]));
  }
}

void columns_forward(const Conv& c, bool onto) {
  NoGrad quiet;
  const Tensor w = contiguous(c.w.detach());
  over_columns(c, [&](const Tensor& columns, int64_t first, int64_t images) {
    matmul_batched_(output_matrices(c, some_images(c.y, first, images)), weight_matrices(c, w, images), columns, onto);
  });
}

// dw contiguous (O, C / G, kh, kw).
void columns_weight(const Conv& c, const Tensor& g, const Tensor& dw) {
  Tensor zeros = dw;
  fill_(zeros, 0.0);
  const Tensor to = weight_matrices(c, dw, 1);
  over_columns(c, [&](const Tensor& columns, int64_t first, int64_t images) {
    for (int64_t n = 0; n < images; ++n)
      matmul_batched_(to, output_matrices(c, image(g, first + n)), swapped(image(columns, n)), true);
  });
}

void columns_input(const Conv& c, const Tensor& g, const Tensor& dx) {
  NoGrad quiet;
  const DType sums = sums_of(dx.dtype());
  const Tensor w = contiguous(c.w.detach());
  const int64_t all = c.x.sizes()[0], at_once = images_at_once(c);
  const Tensor columns = workspace(Dims(column_count(c, at_once)), sums, dx.device());
  const Tensor padded = workspace(padded_size(c, at_once), sums, dx.device());
  for (int64_t first = 0; first < all; first += at_once) {
    const int64_t images = std::min(at_once, all - first);
    matmul_batched_(column_matrices(c, columns, images), swapped(weight_matrices(c, w, images)),
                    output_matrices(c, some_images(g, first, images)), false);
    Tensor used = some_images(padded, 0, images);
    fill_(used, 0.0);
    const Tensor to = windows(c, used), from = column_windows(c, columns, images);
    for (int64_t i = 0; i < c.axis(0).taps; ++i)  // the windows of one tap do not overlap
      for (int64_t j = 0; j < c.axis(1).taps; ++j) {
        Tensor here = slice(slice(to, 2, i, i + 1), 3, j, j + 1);
        add_(here, slice(slice(from, 2, i, i + 1), 3, j, j + 1));
      }
    copy_(some_images(dx, first, images), inside(c, used));
  }
}

// ---- the op

void forward(const Conv& c, const Tensor& bias) {
  if (c.y.numel() == 0) return;
  if (c.depthwise()) {
    ConvDepthwiseArgs args{c.x.raw(), depthwise_weight(c.w).raw(), {}, c.y.raw(), c.how, bias.defined()};
    if (bias.defined()) args.bias = bias.raw();
    return launch(&Kernels::conv_depthwise, args);
  }
  if (!c.by_taps() && c.by_wide_taps()) return wide_taps_forward(c, bias.defined() ? bias.detach() : bias);
  if (bias.defined()) copy_(c.y, bias_of_channels(bias, c.y.sizes()));
  c.by_taps() ? taps_forward(c, bias.defined()) : columns_forward(c, bias.defined());
}

void add_input_gradient(Backward& b, const Conv& c, const Tensor& g) {
  Tensor dx = b.empty(0);
  if (c.depthwise()) {
    launch(&Kernels::conv_depthwise_input,
           ConvDepthwiseInputArgs{g.raw(), depthwise_weight(c.w).raw(), dx.raw(), c.how});
    return b.add(0, dx);
  }
  const bool taps = c.by_taps(), wide = !taps || dx.dtype() == sums_of(dx.dtype());
  Tensor sums = wide ? dx : workspace(dx.sizes(), DType::kF32, dx.device());
  taps ? taps_input(c, g, sums) : columns_input(c, g, dx);
  if (!wide) copy_(dx, sums);
  b.add(0, dx);
}

void add_weight_gradient(Backward& b, const Conv& c, const Tensor& g) {
  NoGrad quiet;
  const InputMeta& m = b.input(1);
  const DType sums = sums_of(m.dtype);
  const Dims& s = m.size;
  Tensor dw = Tensor::empty(s, sums, m.device, b.category(1));
  if (c.depthwise()) {
    launch(&Kernels::conv_depthwise_weight,
           ConvDepthwiseWeightArgs{g.raw(), c.x.raw(), depthwise_weight(dw).raw(), c.how});
  } else if (c.by_taps()) {
    const Tensor taps = workspace(Dims(s[3], s[0], s[1]), sums, m.device);
    taps_weight(c, g, taps);
    copy_(dw.alias(Dims(s[0], s[1], s[3]), Dims(s[1] * s[3], s[3], 1), 0),
          taps.alias(Dims(s[0], s[1], s[3]), Dims(s[1], 1, s[0] * s[1]), 0));
  } else {
    columns_weight(c, g, dw);
  }
  if (b.gradient_dtype(1) != sums) {
    Tensor rounded = b.empty(1);
    copy_(rounded, dw);
    dw = rounded;
  }
  b.add(1, std::move(dw));
}

void add_bias_gradient(Backward& b, const Tensor& g) {
  const int64_t n = g.sizes()[1];
  const Tensor db = Tensor::empty(Dims(n), b.gradient_dtype(2), g.device(), b.category(2));
  reduce_(ReduceOp::kSum, g, db.alias(Dims(1, n, 1, 1), Dims(0, 1, 0, 0), 0));
  b.add(2, db);
}

void backward_of(Backward& b, const Dims& how, int64_t groups) {
  NoGrad quiet;
  const Tensor g = contiguous(b.take_grad());
  const Conv c{b.saved(0), b.saved(1), g, how, groups};
  if (b.needs(2)) add_bias_gradient(b, g);
  if (b.needs(0)) add_input_gradient(b, c, g);
  if (b.needs(1)) add_weight_gradient(b, c, g);
}

void check(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, int axes, int64_t groups) {
  require_same(op, x, weight);
  if (bias.defined()) require_same(op, x, bias);
  if ((x.dim() != axes + 1 && x.dim() != axes + 2) || weight.dim() != axes + 2)
    fail("{}: takes an input of {} or {} axes and a weight of {}, not {} and {}", op, axes + 1, axes + 2, axes + 2,
         str(x.sizes()), str(weight.sizes()));
  const int64_t channels = x.size(-1 - axes), out = weight.sizes()[0];
  if (groups < 1) fail("{}: groups must be positive, not {}", op, groups);
  if (channels != weight.sizes()[1] * groups)
    fail("{}: given groups={}, weight of size {}, expected input {} to have {} channels, but got {} channels instead",
         op, groups, str(weight.sizes()), str(x.sizes()), weight.sizes()[1] * groups, channels);
  if (out % groups != 0 || out == 0)
    fail("{}: weight {} must give a positive multiple of groups={} output channels", op, str(weight.sizes()), groups);
  if (bias.defined() && bias.sizes() != Dims(out))
    fail("{}: bias {} does not fit {} output channels", op, str(bias.sizes()), out);
}

// x (N, C, H, W).
Tensor conv(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& how,
            int64_t groups) {
  Dims size(x.sizes()[0], weight.sizes()[0], 0, 0);
  for (int i = 0; i < 2; ++i) {
    const ConvAxis a = conv_axis(how, weight.sizes(), i);
    if (a.stride < 1 || a.padding < 0 || a.dilation < 1)
      fail("{}: stride {} and dilation {} must be positive, padding {} not negative", op, a.stride, a.dilation,
           a.padding);
    const int64_t padded = x.sizes()[2 + i] + 2 * a.padding, reach = a.dilation * (a.taps - 1) + 1;
    if (a.taps < 1 || padded < reach)
      fail("{}: padded input size {}, kernel size {}: the kernel can't be greater than the input ({} and weight {})",
           op, padded, reach, str(x.sizes()), str(weight.sizes()));
    size[2 + i] = (padded - reach) / a.stride + 1;
  }
  Tensor y = Tensor::empty(size, x.dtype(), x.device());
  forward({x.detach(), weight.detach(), y.detach(), how, groups}, bias.defined() ? bias.detach() : bias);
  record(
      y, {x, weight, bias}, {x, weight}, [](Backward& b, Dims parts, int64_t g) { backward_of(b, parts, g); }, how,
      groups);
  return y;
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride, int64_t padding,
              int64_t dilation, int64_t groups) {
  check("conv1d", x, weight, bias, 1, groups);
  const Tensor images = unsqueeze(x.dim() == 3 ? x : unsqueeze(x, 0), 2);
  const Tensor y =
      squeeze(conv("conv1d", images, unsqueeze(weight, 2), bias, Dims(1, stride, 0, padding, 1, dilation), groups), 2);
  return x.dim() == 3 ? y : squeeze(y, 0);
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride, Pair padding, Pair dilation,
              int64_t groups) {
  check("conv2d", x, weight, bias, 2, groups);
  const Tensor y = conv("conv2d", x.dim() == 4 ? x : unsqueeze(x, 0), weight, bias,
                        Dims(stride.h, stride.w, padding.h, padding.w, dilation.h, dilation.w), groups);
  return x.dim() == 4 ? y : squeeze(y, 0);
}

}  // namespace tally
