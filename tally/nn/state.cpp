#include "tally/nn/state.h"

#include <algorithm>
#include <cstring>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/dtype.h"
#include "tally/io/safetensors.h"
#include "tally/ops/elementwise.h"

namespace tally {

namespace {

void require_host(const Param& p, const char* what) {
  if (p.tensor->device().kind == DeviceKind::kMeta) fail("{}: {} is on meta and holds no values", what, p.name);
}

// The first difference in names or shapes between the file and what is wanted.
void check_same(const SafeTensors& file, const std::vector<Param>& tensors) {
  for (const Param& p : tensors) {
    require_host(p, "load");
    const SafeTensor& found = file.at(p.name);
    if (!(found.shape == p.tensor->sizes()))
      fail("{}: {} has the shape {}; here it has the shape {}", file.file(), p.name, str(found.shape),
           str(p.tensor->sizes()));
    if (!is_float(*found.dtype))
      fail("{}: {} holds {}; values of parameters are f32, bf16, f16 or f64", file.file(), p.name, found.dtype_name);
    if (!p.tensor->is_contiguous()) fail("load: {} is not contiguous", p.name);
  }
  if (file.tensors().size() == tensors.size()) return;
  std::vector<std::string> wanted;
  for (const Param& p : tensors) wanted.push_back(p.name);
  std::sort(wanted.begin(), wanted.end());
  for (const SafeTensor& t : file.tensors())
    if (!std::binary_search(wanted.begin(), wanted.end(), t.name))
      fail("{}: holds {} of shape {}, which is not expected here", file.file(), t.name, str(t.shape));
}

void copy_values(const Tensor& into, const SafeTensor& from) {
  if (from.data.empty()) return;
  bump_version(into);
  if (*from.dtype == into.dtype()) {
    copy_bytes(into.raw().data, into.device(), from.data.data(), kCpu, static_cast<int64_t>(from.data.size()));
    return;
  }
  const Tensor values = Tensor::empty(from.shape, *from.dtype, kCpu, Category::kWorkspace);
  std::memcpy(values.raw().data, from.data.data(), from.data.size());
  copy_(into.detach(), values);
}

}  // namespace

void save_tensors(const fs::path& path, const std::vector<Param>& tensors, const Metadata& metadata) {
  std::vector<SafeItem> items;
  std::vector<Tensor> host;  // of tensors that are on a device
  for (const Param& p : tensors) {
    require_host(p, "save");
    if (!p.tensor->is_contiguous()) fail("save: {} is not contiguous", p.name);
    host.push_back(to(p.tensor->detach(), kCpu));
    items.push_back({p.name, p.tensor->dtype(), p.tensor->sizes(), host.back().raw().data});
  }
  write_safetensors(path, items, metadata);
}

void load_tensors(const fs::path& path, const std::vector<Param>& tensors) {
  const SafeTensors file(path);
  check_same(file, tensors);
  for (const Param& p : tensors) copy_values(*p.tensor, file.at(p.name));
}

}  // namespace tally
