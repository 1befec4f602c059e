// safetensors: what is accepted tiles the data, is found by name, and is read back equal when it is written again.
#include "tally/io/safetensors.h"

#include "tests/fuzz/fuzz.h"

namespace tally::fuzz {
namespace {

constexpr const char* kName = "x.safetensors";

void check_tensors(const SafeTensors& file, Bytes input) {
  uint64_t total = 0;
  for (const SafeTensor& t : file.tensors()) {
    require(inside(t.data, input), "a tensor's bytes are outside the file");
    require(file.find(t.name) == &t, "a tensor is not found by its name");
    if (t.dtype)
      require(t.data.size() == static_cast<uint64_t>(t.shape.numel() * item_size(*t.dtype)), "wrong size of a tensor");
    require(accepted(kName, [&] { file.at(t.name); }) == t.dtype.has_value(), "at() and dtype do not agree");
    total += t.data.size();
  }
  require(total == file.data_bytes(), "the tensors do not tile the data");
  for (const auto& [key, value] : file.metadata()) require(file.find_metadata(key) == &value, "metadata is not found");
  accepted(kName, [&] { file.at("no such tensor"); });
}

void check_round_trip(const SafeTensors& file) {
  std::vector<SafeItem> items;
  std::string data;
  for (const SafeTensor& t : file.tensors()) {
    if (!t.dtype) continue;
    items.push_back({t.name, *t.dtype, t.shape, t.data.data()});
    data += text_of(t.data);
  }
  const std::string whole = safetensors_header(items, file.metadata()) + data;
  require(whole.size() == safetensors_bytes(items, file.metadata()), "safetensors_bytes is wrong");
  const SafeTensors back = SafeTensors::parse(bytes_of(whole), kName);
  require(back.metadata() == file.metadata(), "metadata changed");
  require(back.tensors().size() == items.size(), "the number of tensors changed");
  for (size_t i = 0; i < items.size(); ++i) {
    const SafeTensor &a = *file.find(items[i].name), &b = back.tensors()[i];
    require(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && equal(a.data, b.data), "a tensor changed");
  }
}

}  // namespace
}  // namespace tally::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tally::fuzz;
  const tally::Bytes input = bytes_of(data, size);
  tally::SafeTensors file;
  if (!accepted(kName, [&] { file = tally::SafeTensors::parse(input, kName); })) return 0;
  check_tensors(file, input);
  check_round_trip(file);
  return 0;
}
