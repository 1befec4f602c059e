// .npy and .npz, the latter once more with the right checksums put in. What Tally computes with is read back equal when
// it is written again.
#include "tally/io/npy.h"

#include <array>

#include "tests/fuzz/fuzz.h"

namespace tally::fuzz {
namespace {

constexpr const char* kName = "x.npy";

void check_array(const NpyArray& array, Bytes input) {
  require(inside(array.data, input), "the array is outside the file");
  accepted(kName, [&] {
    const IdSpan ids = array.ids(kName);
    require(ids.size() == array.shape[0], "the number of ids is not the size of the axis");
    std::vector<int32_t> out(static_cast<size_t>(ids.size()));
    ids.copy(0, ids.size(), INT32_MAX, out.data());
  });
  accepted(kName, [&] {
    const std::string text = array.text(kName);
    require(text.size() <= array.data.size() && !text.ends_with('\0'), "a string longer than its bytes");
  });
  if (!array.dtype) return;
  require(array.data.size() == static_cast<uint64_t>(array.shape.numel() * item_size(*array.dtype)), "wrong size");
  const fs::path path = scratch_folder() / "again.npy";
  write_npy(path, *array.dtype, array.shape, array.data.data());
  const NpyFile file(path);
  const NpyArray& back = file.at("");
  require(back.dtype == array.dtype && back.shape == array.shape && equal(back.data, array.data), "the array changed");
}

void check(Bytes input) {
  NpyArray array;
  if (accepted(kName, [&] { array = parse_npy(input, kName); })) check_array(array, input);
  std::vector<std::pair<std::string, NpyArray>> members;
  if (!accepted(kName, [&] { members = parse_npz(input, kName); })) return;
  uint64_t total = 0;
  for (const auto& [name, member] : members) {
    check_array(member, input);
    total += member.data.size();
  }
  require(total <= input.size(), "the members of an archive share bytes");
}

uint32_t crc32(std::string_view data) {
  uint32_t crc = ~0u;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

// Each directory entry gets the sum of the bytes that it names.
std::string with_right_sums(Bytes input) {
  std::string text = text_of(input);
  int entries = 0;
  for (size_t at = text.find("PK\1\2"); at != std::string::npos; at = text.find("PK\1\2", at + 1)) {
    if (at + 46 > text.size() || ++entries > 8) break;
    const Bytes now = bytes_of(text);
    const uint64_t size = load_number<uint32_t>(now, at + 24), local = load_number<uint32_t>(now, at + 42);
    if (local + 30 > text.size()) continue;
    const uint64_t begin = local + 30 + load_number<uint16_t>(now, local + 26) + load_number<uint16_t>(now, local + 28);
    if (begin > text.size() || size > text.size() - begin) continue;
    const uint32_t sum = crc32(std::string_view(text).substr(begin, size));
    std::memcpy(text.data() + at + 16, &sum, sizeof sum);
  }
  return text;
}

}  // namespace
}  // namespace tally::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tally::fuzz;
  check(bytes_of(data, size));
  if (size < 2 || data[0] != 'P') return 0;
  const std::string summed = with_right_sums(bytes_of(data, size));
  const std::vector<char> exact(summed.begin(), summed.end());
  check({reinterpret_cast<const std::byte*>(exact.data()), exact.size()});
  return 0;
}
