// Chooses the kernel table: one per instruction set, compiled from the same files.
#include <cstdlib>
#include <string>

#include "tally/base/error.h"
#include "tally/core/dtype.h"
#include "tally/ops/launch.h"

namespace tally {

namespace isa_base {
const Kernels& kernels();
}
#if defined(__x86_64__)
namespace isa_v3 {
const Kernels& kernels();
}
namespace isa_v4 {
const Kernels& kernels();
}
#endif

#if defined(TALLY_CUDA)
namespace cuda {
const Kernels& kernels();
}
#endif

namespace {

struct Choice {
  const char* name;
  const Kernels* table;
};

bool cpu_has(const std::string& isa) {
#if defined(__x86_64__)
  if (isa == "v3")
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (isa == "v4")
    return cpu_has("v3") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return isa == "base";
}

std::vector<Choice> available() {
  std::vector<Choice> all = {{"base", &isa_base::kernels()}};
#if defined(__x86_64__)
  if (cpu_has("v3")) all.push_back({"v3", &isa_v3::kernels()});
  if (cpu_has("v4")) all.push_back({"v4", &isa_v4::kernels()});
#endif
  return all;
}

// Of all devices: what the kernel matrix shows.
std::vector<Choice> tables() {
  std::vector<Choice> all = available();
#if defined(TALLY_CUDA)
  all.push_back({"cuda", &cuda::kernels()});
#endif
  return all;
}

Choice choose() {
  const std::vector<Choice> all = available();
  const char* wanted = std::getenv("TALLY_ISA");
  if (wanted == nullptr || *wanted == 0) return all.back();
  for (const Choice& c : all)
    if (std::string(wanted) == c.name) return c;
  fail("TALLY_ISA={}: this processor has {} as the highest of base, v3, v4", wanted, all.back().name);
}

const Choice& cpu_choice() {
  static const Choice choice = choose();
  return choice;
}

// The member pointers of Kernels are all function pointers, so the rows of the matrix are read off one list of names.
template <class A>
KernelRow row(Kernel<A> Kernels::*slot) {
  KernelRow r{A::name, {}};
  for (const Choice& c : tables()) r.has.push_back(c.table->*slot != nullptr);
  return r;
}

}  // namespace

const Kernels& kernels_of(Device device) {
#if defined(TALLY_CUDA)
  if (device.kind == DeviceKind::kCuda) return cuda::kernels();
#endif
  if (device.kind != DeviceKind::kCpu) fail("this build has no kernels for {}", name_of(device));
  return *cpu_choice().table;
}

std::string cpu_isa() { return cpu_choice().name; }

std::vector<const char*> backend_names() {
  std::vector<const char*> names;
  for (const Choice& c : tables()) names.push_back(c.name);
  return names;
}

std::vector<KernelRow> kernel_matrix() {
  using K = Kernels;
  return {row(&K::unary),
          row(&K::unary_backward),
          row(&K::binary),
          row(&K::binary_backward),
          row(&K::integer),
          row(&K::compare),
          row(&K::where),
          row(&K::triangle),
          row(&K::fill),
          row(&K::copy),
          row(&K::swiglu),
          row(&K::swiglu_backward),
          row(&K::reduce),
          row(&K::max_backward),
          row(&K::reduce_backward),
          row(&K::loss),
          row(&K::loss_backward),
          row(&K::nll),
          row(&K::nll_backward),
          row(&K::find_outside),
          row(&K::reduce_plain),
          row(&K::arg_reduce),
          row(&K::prod_backward),
          row(&K::scan),
          row(&K::cumprod_backward),
          row(&K::sort),
          row(&K::topk),
          row(&K::matmul),
          row(&K::layer_norm),
          row(&K::layer_norm_backward),
          row(&K::rms_norm),
          row(&K::rms_norm_backward),
          row(&K::softmax),
          row(&K::softmax_backward),
          row(&K::cross_entropy),
          row(&K::cross_entropy_backward),
          row(&K::cross_entropy_fused),
          row(&K::rope_table),
          row(&K::rope),
          row(&K::embedding),
          row(&K::embedding_backward),
          row(&K::gather),
          row(&K::gather_backward),
          row(&K::scatter),
          row(&K::linear_index),
          row(&K::nonzero_count),
          row(&K::nonzero),
          row(&K::matmul_int),
          row(&K::conv_depthwise),
          row(&K::conv_depthwise_input),
          row(&K::conv_depthwise_weight),
          row(&K::dropout),
          row(&K::random),
          row(&K::sequence),
          row(&K::count_unequal),
          row(&K::attention),
          row(&K::attention_backward),
          row(&K::cache_write),
          row(&K::cache_advance),
          row(&K::adamw),
          row(&K::sum_squares),
          row(&K::step_totals),
          row(&K::quantize_scale),
          row(&K::quantize),
          row(&K::dequantize),
          row(&K::fma_probe),
          row(&K::read_probe)};
}

namespace detail {

LaunchObserver* launch_observer = nullptr;

void no_kernel(const char* name, Device device) { fail("{} has no {} kernel", name, name_of(device)); }

}  // namespace detail

LaunchObserver* set_launch_observer(LaunchObserver* observer) {
  return std::exchange(detail::launch_observer, observer);
}

}  // namespace tally
