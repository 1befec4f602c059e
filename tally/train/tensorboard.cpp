#include "tally/train/tensorboard.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "tally/base/error.h"

namespace tally {

namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.", kSuffix = ".tally";
constexpr size_t kFrameBytes = 8 + 4 + 4;  // around the data of a record

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
    table[i] = crc;
  }
  return table;
}

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class T>
std::string raw(T value) {  // little-endian, as the machine
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <class T>
T number_at(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string record(std::string_view data) {
  const std::string length = raw(uint64_t{data.size()});
  return length + raw(masked_crc(length)) + std::string(data) + raw(masked_crc(data));
}

// Protocol buffers: a field is its number and wire type (0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes).
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}
std::string key(uint64_t field, uint64_t wire) { return varint(field << 3 | wire); }
std::string text_field(uint64_t field, std::string_view bytes) {
  return key(field, 2) + varint(bytes.size()) + std::string(bytes);
}

// The wall time is for show only: TensorBoard draws over steps unless asked for times.
std::string event(int64_t step, const std::string& what) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return record(key(1, 1) + raw(now) + key(2, 0) + varint(static_cast<uint64_t>(step)) + what);
}

// Field 2 of an event as written above: it follows the nine bytes of wall_time.
int64_t step_of(std::string_view event) {
  uint64_t step = 0;
  for (size_t at = 10; at < event.size(); ++at) {
    const auto byte = static_cast<uint8_t>(event[at]);
    step |= uint64_t{byte & 127u} << (7 * (at - 10));
    if (byte < 128 || at == 19) break;
  }
  return static_cast<int64_t>(step);
}

// Names sort by their numbers. The number of the last file, 0 when there is none.
int64_t cut_files(const fs::path& folder, int64_t step) {
  int64_t last = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    last = std::max<int64_t>(last, std::atoll(name.c_str() + kPrefix.size()));
    const std::string bytes = read_file(entry.path());
    const size_t kept = events_until(bytes, step);
    std::error_code error;
    if (kept < bytes.size()) fs::resize_file(entry.path(), kept, error);
    if (error) fail("{}: cannot be cut at step {} ({})", entry.path().string(), step, error.message());
  }
  return last;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 255];
  return ~crc;
}

size_t events_until(std::string_view bytes, int64_t step) {
  size_t at = 0;
  while (bytes.size() - at >= kFrameBytes) {
    const uint64_t length = number_at<uint64_t>(bytes, at);
    if (length > bytes.size() - at - kFrameBytes ||
        number_at<uint32_t>(bytes, at + 8) != masked_crc(bytes.substr(at, 8)))
      break;
    const std::string_view data = bytes.substr(at + 12, length);
    if (number_at<uint32_t>(bytes, at + 12 + length) != masked_crc(data) || step_of(data) > step) break;
    at += kFrameBytes + length;
  }
  return at;
}

TensorBoardFile::TensorBoardFile(const fs::path& folder, int64_t step) {
  make_folder(folder);
  const int64_t number = cut_files(folder, step) + 1;
  const fs::path path = folder / fmt::format("{}{:010d}{}", kPrefix, number, kSuffix);
  std::string head = event(0, text_field(3, "brain.Event:2"));
  if (number > 1) head += event(step + 1, text_field(7, key(1, 0) + varint(1)));
  write_file_atomic(path, head);
  file_ = std::make_unique<AppendFile>(path);
}

void TensorBoardFile::add(int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars)
    summary += text_field(1, text_field(1, tag) + key(2, 5) + raw(static_cast<float>(value)));
  file_->add(event(step, text_field(5, summary)));
}

}  // namespace tally
