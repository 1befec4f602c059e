// CUDA's table; dispatch.cpp chooses it for tensors on a card. Compiled with -DTALLY_ISA=cuda, so that *_kernels.h
// declares the functions of *_cuda.cu.
#include "tally/ops/kernels.h"

namespace tally::cuda {

const Kernels& kernels();

namespace {
constexpr Kernels kTable = {
    .unary = unary,
    .unary_backward = unary_backward,
    .binary = binary,
    .binary_backward = binary_backward,
    .integer = integer,
    .compare = compare,
    .where = where,
    .triangle = triangle,
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
    .reduce_plain = reduce_plain,
    .arg_reduce = arg_reduce,
    .prod_backward = prod_backward,
    .scan = scan,
    .cumprod_backward = cumprod_backward,
    .sort = sort,
    .topk = topk,
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
    .scatter = scatter,
    .linear_index = linear_index,
    .nonzero_count = nonzero_count,
    .nonzero = nonzero,
    .matmul_int = matmul_int,
    .conv_depthwise = conv_depthwise,
    .conv_depthwise_input = conv_depthwise_input,
    .conv_depthwise_weight = conv_depthwise_weight,
    .dropout = dropout,
    .random = random,
    .sequence = sequence,
    .count_unequal = count_unequal,
    .attention = attention,
    .attention_backward = attention_backward,
    .cache_write = cache_write,
    .cache_advance = cache_advance,
    .adamw = adamw,
    .sum_squares = sum_squares,
    .step_totals = step_totals,
    .quantize_scale = quantize_scale,
    .quantize = quantize,
    .dequantize = dequantize,
    .fma_probe = fma_probe,
    .read_probe = read_probe,
};
}  // namespace

const Kernels& kernels() { return kTable; }

}  // namespace tally::cuda
