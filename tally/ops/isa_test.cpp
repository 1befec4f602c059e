// The kernel tables of all instruction sets this processor has give the same bits.
#include <cstdlib>

#include "tally/ops/op_test.h"

namespace tally::test {
namespace {

TEST(Isa, EveryTableHasEveryKernel) {
  for (const KernelRow& row : kernel_matrix())
    for (size_t i = 0; i < row.has.size(); ++i) EXPECT_TRUE(row.has[i]) << row.name << " in " << backend_names()[i];
}

TEST(Isa, EveryKernelHasAReference) {
  for (const KernelRow& row : kernel_matrix())
    if (!std::string(row.name).ends_with("_probe")) {
      EXPECT_TRUE(references().contains(row.name)) << row.name;
    }
}

}  // namespace
}  // namespace tally::test
