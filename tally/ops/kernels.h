// One slot a kernel. A backend is one such table, filled with designated initialisers (kernels_cpu.cpp); an empty slot
// is a clear error at launch.
#pragma once

#include "tally/ops/allclose_kernels.h"
#include "tally/ops/attention_kernels.h"
#include "tally/ops/cache_kernels.h"
#include "tally/ops/compare_kernels.h"
#include "tally/ops/conv_kernels.h"
#include "tally/ops/creation_kernels.h"
#include "tally/ops/cross_entropy_kernels.h"
#include "tally/ops/dropout_kernels.h"
#include "tally/ops/elementwise_kernels.h"
#include "tally/ops/embedding_kernels.h"
#include "tally/ops/gather_kernels.h"
#include "tally/ops/indexing_kernels.h"
#include "tally/ops/integer_kernels.h"
#include "tally/ops/losses_kernels.h"
#include "tally/ops/matmul_int_kernels.h"
#include "tally/ops/matmul_kernels.h"
#include "tally/ops/norm_kernels.h"
#include "tally/ops/optim_step_kernels.h"
#include "tally/ops/probe_kernels.h"
#include "tally/ops/quantize_kernels.h"
#include "tally/ops/random_kernels.h"
#include "tally/ops/reduce_kernels.h"
#include "tally/ops/reduce_plain_kernels.h"
#include "tally/ops/rope_kernels.h"
#include "tally/ops/scan_kernels.h"
#include "tally/ops/scatter_kernels.h"
#include "tally/ops/softmax_kernels.h"
#include "tally/ops/sort_kernels.h"
#include "tally/ops/where_kernels.h"

namespace tally {

template <class A>
using Kernel = void (*)(const A&);

struct Kernels {
  Kernel<UnaryArgs> unary = nullptr;
  Kernel<UnaryBackwardArgs> unary_backward = nullptr;
  Kernel<BinaryArgs> binary = nullptr;
  Kernel<BinaryBackwardArgs> binary_backward = nullptr;
  Kernel<IntegerArgs> integer = nullptr;
  Kernel<CompareArgs> compare = nullptr;
  Kernel<WhereArgs> where = nullptr;
  Kernel<TriangleArgs> triangle = nullptr;
  Kernel<FillArgs> fill = nullptr;
  Kernel<CopyArgs> copy = nullptr;
  Kernel<SwigluArgs> swiglu = nullptr;
  Kernel<SwigluBackwardArgs> swiglu_backward = nullptr;
  Kernel<ReduceArgs> reduce = nullptr;
  Kernel<MaxBackwardArgs> max_backward = nullptr;
  Kernel<ReduceBackwardArgs> reduce_backward = nullptr;
  Kernel<LossArgs> loss = nullptr;
  Kernel<LossBackwardArgs> loss_backward = nullptr;
  Kernel<NllArgs> nll = nullptr;
  Kernel<NllBackwardArgs> nll_backward = nullptr;
  Kernel<FindOutsideArgs> find_outside = nullptr;
  Kernel<ReducePlainArgs> reduce_plain = nullptr;
  Kernel<ArgReduceArgs> arg_reduce = nullptr;
  Kernel<ProdBackwardArgs> prod_backward = nullptr;
  Kernel<ScanArgs> scan = nullptr;
  Kernel<CumprodBackwardArgs> cumprod_backward = nullptr;
  Kernel<SortArgs> sort = nullptr;
  Kernel<TopkArgs> topk = nullptr;
  Kernel<MatmulArgs> matmul = nullptr;
  Kernel<LayerNormArgs> layer_norm = nullptr;
  Kernel<LayerNormBackwardArgs> layer_norm_backward = nullptr;
  Kernel<RmsNormArgs> rms_norm = nullptr;
  Kernel<RmsNormBackwardArgs> rms_norm_backward = nullptr;
  Kernel<SoftmaxArgs> softmax = nullptr;
  Kernel<SoftmaxBackwardArgs> softmax_backward = nullptr;
  Kernel<CrossEntropyArgs> cross_entropy = nullptr;
  Kernel<CrossEntropyBackwardArgs> cross_entropy_backward = nullptr;
  Kernel<CrossEntropyFusedArgs> cross_entropy_fused = nullptr;
  Kernel<RopeTableArgs> rope_table = nullptr;
  Kernel<RopeArgs> rope = nullptr;
  Kernel<EmbeddingArgs> embedding = nullptr;
  Kernel<EmbeddingBackwardArgs> embedding_backward = nullptr;
  Kernel<GatherArgs> gather = nullptr;
  Kernel<GatherBackwardArgs> gather_backward = nullptr;
  Kernel<ScatterArgs> scatter = nullptr;
  Kernel<LinearIndexArgs> linear_index = nullptr;
  Kernel<NonzeroCountArgs> nonzero_count = nullptr;
  Kernel<NonzeroArgs> nonzero = nullptr;
  Kernel<MatmulIntArgs> matmul_int = nullptr;
  Kernel<ConvDepthwiseArgs> conv_depthwise = nullptr;
  Kernel<ConvDepthwiseInputArgs> conv_depthwise_input = nullptr;
  Kernel<ConvDepthwiseWeightArgs> conv_depthwise_weight = nullptr;
  Kernel<DropoutArgs> dropout = nullptr;
  Kernel<RandomArgs> random = nullptr;
  Kernel<SequenceArgs> sequence = nullptr;
  Kernel<CountUnequalArgs> count_unequal = nullptr;
  Kernel<AttentionArgs> attention = nullptr;
  Kernel<AttentionBackwardArgs> attention_backward = nullptr;
  Kernel<CacheWriteArgs> cache_write = nullptr;
  Kernel<CacheAdvanceArgs> cache_advance = nullptr;
  Kernel<AdamwArgs> adamw = nullptr;
  Kernel<SumSquaresArgs> sum_squares = nullptr;
  Kernel<StepTotalsArgs> step_totals = nullptr;
  Kernel<QuantizeScaleArgs> quantize_scale = nullptr;
  Kernel<QuantizeArgs> quantize = nullptr;
  Kernel<DequantizeArgs> dequantize = nullptr;
  Kernel<ProbeArgs> fma_probe = nullptr;
  Kernel<ReadProbeArgs> read_probe = nullptr;
};

}  // namespace tally
