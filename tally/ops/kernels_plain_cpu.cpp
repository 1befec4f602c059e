// The CPU's kernels that are compiled once, for every instruction set: loops over integers, indices and orderings,
// which memory or comparisons bound. kernels_cpu.cpp puts them into each table.
#include "tally/ops/kernels.h"

namespace tally::isa_plain {

void add_plain_kernels(Kernels& table);

void add_plain_kernels(Kernels& table) {
  table.scatter = scatter;
  table.linear_index = linear_index;
  table.nonzero_count = nonzero_count;
  table.nonzero = nonzero;
  table.matmul_int = matmul_int;
}

}  // namespace tally::isa_plain
