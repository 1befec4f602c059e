// safetensors files: names to tensors. The package's save() and load() stand on it.
#include <nanobind/stl/filesystem.h>

#include <cstring>

#include "python/bind.h"
#include "tally/io/safetensors.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/view.h"

namespace tally::py {
namespace {

void write_file(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                const nb::dict& metadata) {
  SafeMetadata meta;
  for (const auto& [k, v] : metadata) meta.emplace_back(nb::cast<std::string>(k), nb::cast<std::string>(v));
  const Unlocked free;
  std::vector<Tensor> kept;
  std::vector<SafeItem> items;
  for (const auto& [name, x] : tensors) {
    if (x.device().kind == DeviceKind::kMeta) fail("save: {} is on {} and has no values", name, name_of(x.device()));
    kept.push_back(contiguous(to(x.detach(), kCpu)));
    items.push_back({name, x.dtype(), x.sizes(), kept.back().raw().data});
  }
  write_safetensors(path, items, meta);
}

nb::object read_file(const std::filesystem::path& path) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  SafeMetadata meta;
  {
    const Unlocked free;
    const SafeTensors file(path);
    for (const SafeTensor& t : file.tensors()) {
      if (!t.dtype) fail("{}: {} is of dtype {}, which has no dtype here", file.file(), t.name, t.dtype_name);
      Tensor x = Tensor::empty(t.shape, *t.dtype);
      if (!t.data.empty()) std::memcpy(x.raw().data, t.data.data(), t.data.size());
      tensors.emplace_back(t.name, x);
    }
    meta = file.metadata();
  }
  nb::dict all, texts;
  for (auto& [name, x] : tensors) all[name.c_str()] = x;
  for (const auto& [k, v] : meta) texts[k.c_str()] = v;
  return nb::make_tuple(all, texts);
}

}  // namespace

void bind_io(nb::module_& m) {
  m.def("write_safetensors", write_file, "path"_a, "tensors"_a, "metadata"_a = nb::dict(),
        "Writes (name, tensor) pairs, complete or not at all.");
  m.def("read_safetensors", read_file, "path"_a, "({name: tensor}, {key: text}) of a safetensors file.");
}

}  // namespace tally::py
