// The CPU's table. Compiled once per instruction set, as the kernels are; dispatch.cpp chooses.
#include "tally/ops/kernels.h"

namespace tally::isa_plain {
void add_plain_kernels(Kernels& table);
}

namespace tally::TALLY_ISA {

const Kernels& kernels();

namespace {
constexpr Kernels kTable = {
    .unary = unary,
    .unary_backward = unary_backward,
    .binary = binary,
    .binary_backward = binary_backward,
    .fill = fill,
    .copy = copy,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .reduce = reduce,
    .max_backward = max_backward,
    .reduce_backward = reduce_backward,
    .loss = loss,
    .loss_backward = loss_backward,
    .nll = nll,
    .nll_backward = nll_backward,
    .find_outside = find_outside,
    .matmul = matmul,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .rms_norm = rms_norm,
    .rms_norm_backward = rms_norm_backward,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .cross_entropy = cross_entropy,
    .cross_entropy_backward = cross_entropy_backward,
    .cross_entropy_fused = cross_entropy_fused,
    .rope_table = rope_table,
    .rope = rope,
    .embedding = embedding,
    .embedding_backward = embedding_backward,
    .gather = gather,
    .gather_backward = gather_backward,
    .conv_depthwise = conv_depthwise,
    .conv_depthwise_input = conv_depthwise_input,
    .conv_depthwise_weight = conv_depthwise_weight,
    .dropout = dropout,
    .random = random,
    .attention = attention,
    .attention_backward = attention_backward,
    .cache_write = cache_write,
    .cache_advance = cache_advance,
    .adamw = adamw,
    .sum_squares = sum_squares,
    .step_totals = step_totals,
    .fma_probe = fma_probe,
    .read_probe = read_probe,
};
}  // namespace

const Kernels& kernels() {
  static const Kernels table = [] {
    Kernels t = kTable;
    isa_plain::add_plain_kernels(t);
    return t;
  }();
  return table;
}

}  // namespace tally::TALLY_ISA
