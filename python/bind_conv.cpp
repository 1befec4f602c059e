// Attention, convolutions and padding; tally.nn.functional shows them under PyTorch's names.
#include "python/bind.h"
#include "tally/ops/arrange.h"
#include "tally/ops/conv.h"
#include "tally/ops/sdpa.h"

namespace tally::py {
namespace {

Pair pair_of(const Dims& d, const char* what) {
  if (d.rank == 1) return Pair(d[0]);
  if (d.rank == 2) return Pair(d[0], d[1]);
  fail_value("conv2d: {} {} is neither one number nor two", what, str(d));
}

}  // namespace

void bind_conv(Ops& o) {
  o.function(
      "scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor* mask, double dropout_p, bool is_causal,
         std::optional<double> scale, bool enable_gqa) {
        if (dropout_p != 0) fail_value("scaled_dot_product_attention: dropout_p is {}; there is none", dropout_p);
        return scaled_dot_product_attention(q, k, v, or_none(mask), is_causal, scale, enable_gqa);
      },
      "softmax(q k^T scale + mask) v: q (.., L, E), k (.., S, E), v (.., S, Ev) -> (.., L, Ev) (Vaswani et al. 2017).",
      "query"_a, "key"_a, "value"_a, "attn_mask"_a = nb::none(), "dropout_p"_a = 0.0, "is_causal"_a = false,
      "scale"_a = nb::none(), "enable_gqa"_a = false);
  o.function(
      "conv1d",
      [](const Tensor& x, const Tensor& w, const Tensor* b, const Dims& stride, const Dims& padding,
         const Dims& dilation, int64_t groups) {
        if (stride.rank != 1 || padding.rank != 1 || dilation.rank != 1)
          fail_value("conv1d: stride, padding and dilation are one number each");
        return conv1d(x, w, or_none(b), stride[0], padding[0], dilation[0], groups);
      },
      "x (N, C, L), weight (O, C / groups, K) -> (N, O, L').", "input"_a, "weight"_a, "bias"_a = nb::none(),
      "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1);
  o.function(
      "conv2d",
      [](const Tensor& x, const Tensor& w, const Tensor* b, const Dims& stride, const Dims& padding,
         const Dims& dilation, int64_t groups) {
        return conv2d(x, w, or_none(b), pair_of(stride, "stride"), pair_of(padding, "padding"),
                      pair_of(dilation, "dilation"), groups);
      },
      "x (N, C, H, W), weight (O, C / groups, kh, kw) -> (N, O, H', W').", "input"_a, "weight"_a, "bias"_a = nb::none(),
      "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1);
  o.function(
      "pad",
      [](const Tensor& x, const std::vector<int64_t>& amounts, const std::string& mode, double value) {
        return pad(x, amounts, pad_mode_from_name(mode), value);
      },
      "By two amounts an axis, (before, after), of the last axis first.", "input"_a, "pad"_a, "mode"_a = "constant",
      "value"_a = 0.0);
}

}  // namespace tally::py
