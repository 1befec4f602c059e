// The CPU's kernels that are compiled once, for every instruction set: loops over integers, indices and orderings,
// which memory or comparisons bound. kernels_cpu.cpp puts them into each table.
#include "tally/ops/kernels.h"

namespace tally::isa_plain {

void add_plain_kernels(Kernels& table);

void add_plain_kernels(Kernels& table) {
  table.quantize_scale = quantize_scale;
  table.quantize = quantize;
  table.dequantize = dequantize;
  table.reduce_plain = reduce_plain;
  table.arg_reduce = arg_reduce;
  table.prod_backward = prod_backward;
  table.scan = scan;
  table.cumprod_backward = cumprod_backward;
  table.sort = sort;
  table.topk = topk;
  table.sequence = sequence;
  table.count_unequal = count_unequal;
  table.integer = integer;
  table.compare = compare;
  table.where = where;
  table.triangle = triangle;
  table.scatter = scatter;
  table.linear_index = linear_index;
  table.nonzero_count = nonzero_count;
  table.nonzero = nonzero;
  table.matmul_int = matmul_int;
}

}  // namespace tally::isa_plain
