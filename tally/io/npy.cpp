// The header of .npy is a Python dict literal with three keys; a reader for just that stands here. A zip is read from
// its central directory, since numpy leaves the sizes in the local headers to zip64.
#include "tally/io/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "tally/base/error.h"
#include "tally/base/fields.h"
#include "tally/base/json.h"
#include "tally/core/dtype.h"

namespace tally {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Kind {
  const char* code;  // without the byte order
  int64_t bytes;
  std::optional<DType> dtype;
};
constexpr Kind kKinds[] = {
    {"f8", 8, DType::kF64}, {"f4", 4, DType::kF32}, {"i8", 8, DType::kI64},  {"i4", 4, DType::kI32},
    {"u2", 2, DType::kU16}, {"u1", 1, DType::kU8},  {"u8", 8, std::nullopt}, {"u4", 4, std::nullopt},
    {"i2", 2, DType::kI16}, {"i1", 1, DType::kI8},  {"f2", 2, DType::kF16},  {"b1", 1, DType::kBool},
};

// Reads "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }".
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void read() {
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr")
        descr = peek() == '[' ? fail_structured() : string();
      else if (key == "fortran_order")
        fortran = boolean();
      else if (key == "shape")
        shape();
      else
        damaged("an unknown key");
      if (!take(',') && peek() != '}') damaged("no comma between entries");
    }
    if (descr.empty() || !fortran || !has_shape) damaged("descr, fortran_order or shape is missing");
  }

  std::string descr;
  std::optional<bool> fortran;
  std::vector<int64_t> sizes;
  bool has_shape = false;

 private:
  [[noreturn]] void damaged(const char* why) const { fail("{}: the .npy header is damaged ({})", name_, why); }
  [[noreturn]] std::string fail_structured() const {
    fail("{}: holds a structured array; only plain numbers can be read", name_);
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) damaged("unexpected character");
  }
  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') damaged("a string is missing");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) damaged("a string does not end");
    std::string s(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return s;
  }
  bool boolean() {
    peek();
    const bool value = text_.substr(at_).starts_with("True");
    if (!value && !text_.substr(at_).starts_with("False")) damaged("fortran_order is neither True nor False");
    at_ += value ? 4 : 5;
    return value;
  }
  void shape() {
    expect('(');
    has_shape = true;
    while (!take(')')) {
      peek();
      int64_t n = 0;
      const auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
      if (status != std::errc() || n < 0) damaged("shape is not a tuple of sizes");
      at_ = static_cast<size_t>(end - text_.data());
      take('L');  // Python 2 wrote long integers so
      sizes.push_back(n);
      if (!take(',') && peek() != ')') damaged("shape is not a tuple of sizes");
    }
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

// Bytes of one element, and the dtype where Tally computes with it.
struct Element {
  int64_t bytes = 0;
  std::optional<DType> dtype;
};

Element element_of(const std::string& descr, const std::string& name) {
  const char order = descr[0];
  const std::string_view code = std::string_view(descr).substr(1);
  Element e;
  for (const Kind& k : kKinds)
    if (code == k.code) e = {k.bytes, k.dtype};
  if (code.starts_with('U') || code.starts_with('S')) {  // strings of a fixed length: UTF-32 or bytes
    int64_t length = 0;
    const auto [end, status] = std::from_chars(code.data() + 1, code.data() + code.size(), length);
    const bool valid = status == std::errc() && end == code.data() + code.size() && length >= 0 && length <= INT32_MAX;
    if (valid) e.bytes = length * (code[0] == 'U' ? 4 : 1);
  }
  if (e.bytes == 0)
    fail("{}: numbers of kind {} cannot be read (f8 f4 f2 i8 i4 i2 i1 u2 u1 b1 can)", name, in_quotes(descr));
  if (order != '<' && !(order == '|' && (e.bytes == 1 || code[0] == 'S')))
    fail("{}: numbers of kind {} are not little-endian; store them as <{}", name, printable(descr), printable(code));
  return e;
}

// The reflected CRC-32 of zip (polynomial 0xEDB88320).
uint32_t crc32(Bytes bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? 0xEDB88320u : 0u);
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (const std::byte b : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint32_t>(b)) & 0xFFu];
  return ~crc;
}

struct Member {
  std::string name;
  uint32_t method = 0, flags = 0, crc = 0;
  uint64_t packed = 0, size = 0, local = 0;
};

// Offset of the end-of-central-directory record: the last signature whose comment reaches exactly to the end.
size_t find_directory_end(Bytes zip, const std::string& name) {
  constexpr size_t kRecord = 22;
  for (size_t back = kRecord; back <= zip.size() && back <= kRecord + 65535; ++back) {
    const size_t at = zip.size() - back;
    if (load_number<uint32_t>(zip, at) == 0x06054b50 && load_number<uint16_t>(zip, at + 20) == back - kRecord)
      return at;
  }
  fail("{}: truncated or not a zip: its directory (the last 22 bytes) is missing", name);
}

// Replaces the sizes that are all ones by those of the zip64 extra field.
void read_zip64(Bytes extra, Member& m, const std::string& where) {
  while (extra.size() >= 4) {
    const size_t id = load_number<uint16_t>(extra, 0), size = load_number<uint16_t>(extra, 2);
    Bytes field = take_bytes(extra, 4, size, where, "an extra field");
    extra = extra.subspan(4 + size);
    if (id != 1) continue;
    for (uint64_t* value : {&m.size, &m.packed, &m.local}) {
      if (*value != 0xFFFFFFFFu) continue;
      *value = load_number<uint64_t>(take_bytes(field, 0, 8, where, "a zip64 size"), 0);
      field = field.subspan(8);
    }
  }
}

std::vector<Member> read_directory(Bytes zip, const std::string& name) {
  const size_t end = find_directory_end(zip, name);
  uint64_t count = load_number<uint16_t>(zip, end + 10), at = load_number<uint32_t>(zip, end + 16);
  if (end >= 20 && load_number<uint32_t>(zip, end - 20) == 0x07064b50) {  // zip64 locator
    const uint64_t record = load_number<uint64_t>(zip, end - 20 + 8);
    const Bytes r = take_bytes(zip, record, 56, name, "the zip64 directory record");
    if (load_number<uint32_t>(r, 0) != 0x06064b50) fail("{}: the zip64 directory record is damaged", name);
    count = load_number<uint64_t>(r, 32), at = load_number<uint64_t>(r, 48);
  }
  std::vector<Member> members;
  for (uint64_t i = 0; i < count; ++i) {
    const Bytes e = take_bytes(zip, at, 46, name, "a directory entry");
    if (load_number<uint32_t>(e, 0) != 0x02014b50) fail("{}: the zip directory is damaged at offset {}", name, at);
    const uint64_t name_bytes = load_number<uint16_t>(e, 28), extra_bytes = load_number<uint16_t>(e, 30);
    const uint64_t total = 46 + name_bytes + extra_bytes + load_number<uint16_t>(e, 32);
    const Bytes all = take_bytes(zip, at, total, name, "a directory entry");
    Member m;
    m.name.assign(reinterpret_cast<const char*>(all.data()) + 46, name_bytes);
    m.flags = load_number<uint16_t>(e, 8), m.method = load_number<uint16_t>(e, 10),
    m.crc = load_number<uint32_t>(e, 16);
    m.packed = load_number<uint32_t>(e, 20), m.size = load_number<uint32_t>(e, 24),
    m.local = load_number<uint32_t>(e, 42);
    read_zip64(all.subspan(46 + name_bytes, extra_bytes), m, name);
    members.push_back(std::move(m));
    at += total;
  }
  return members;
}

// Takes the member's size from `unused`: members that share bytes would be summed and copied again and again.
Bytes member_bytes(Bytes zip, const Member& m, uint64_t& unused, const std::string& where) {
  if (m.flags & 1) fail("{}: is encrypted", where);
  if (m.method != 0) fail("{}: is compressed; save it with numpy.savez instead of savez_compressed", where);
  if (m.packed != m.size) fail("{}: is stored, but its two sizes differ", where);
  const Bytes local = take_bytes(zip, m.local, 30, where, "the local header");
  if (load_number<uint32_t>(local, 0) != 0x04034b50) fail("{}: the local header is damaged", where);
  const uint64_t skip = 30 + uint64_t{load_number<uint16_t>(local, 26)} + load_number<uint16_t>(local, 28);
  const Bytes data = take_bytes(zip.subspan(m.local), skip, m.size, where, "the member");
  if (m.size > unused) fail("{}: shares its bytes with another member", where);
  unused -= m.size;
  if (crc32(data) != m.crc) fail("{}: the checksum does not match: the file is damaged", where);
  return data;
}

}  // namespace

IdSpan NpyArray::ids(const std::string& name) const {
  static constexpr std::pair<const char*, IdType> kTypes[] = {{"<u2", IdType::kU16},
                                                              {"<u4", IdType::kU32},
                                                              {"<i4", IdType::kI32},
                                                              {"<i8", IdType::kI64},
                                                              {"<u8", IdType::kU64}};
  if (shape.rank != 1) fail("{}: token ids must have one axis, this array has {}", name, shape.rank);
  for (const auto& [code, type] : kTypes)
    if (descr == code) return {type, data};
  fail("{}: {} numbers cannot be token ids (<u2 <u4 <i4 <i8 <u8 can)", name, descr);
}

std::string NpyArray::text(const std::string& name) const {
  const char kind = descr.size() > 1 ? descr[1] : '?';
  if ((kind != 'U' && kind != 'S') || shape.rank != 0) fail("{}: is not a single string", name);
  std::string out;
  for (size_t i = 0, step = kind == 'U' ? 4 : 1; i + step <= data.size(); i += step) {
    const uint32_t c = step == 4 ? load_number<uint32_t>(data, i) : static_cast<uint32_t>(data[i]);
    if (c >= 0x110000 || (c >= 0xD800 && c < 0xE000))
      fail("{}: the string holds {:#x}, which is no character", name, c);
    if (c < 0x80 || step == 1) {
      out += static_cast<char>(c);
      continue;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;  // continuation bytes of UTF-8
    static constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
    out += static_cast<char>(kLead[more] | (c >> (6 * more)));
    for (int k = more - 1; k >= 0; --k) out += static_cast<char>(0x80u | ((c >> (6 * k)) & 0x3Fu));
  }
  return out.substr(0, out.find_last_not_of('\0') + 1);
}

NpyArray parse_npy(Bytes bytes, const std::string& name) {
  const Bytes head = take_bytes(bytes, 0, 10, name, "the .npy header");
  if (std::string_view(reinterpret_cast<const char*>(head.data()), kMagic.size()) != kMagic)
    fail("{}: is not a .npy file", name);
  const int version = static_cast<int>(head[6]);
  if (version < 1 || version > 3) fail("{}: .npy version {} is not known (1, 2 and 3 are)", name, version);
  const uint64_t start = version == 1 ? 10 : 12;
  const uint64_t length = version == 1 ? load_number<uint16_t>(head, 8)
                                       : load_number<uint32_t>(take_bytes(bytes, 0, 12, name, "the .npy header"), 8);
  const Bytes header = take_bytes(bytes, start, length, name, "the .npy header");
  HeaderReader reader({reinterpret_cast<const char*>(header.data()), header.size()}, name);
  reader.read();
  const Element element = element_of(reader.descr, name);
  if (reader.sizes.size() > static_cast<size_t>(kMaxRank))
    fail("{}: it has {} axes; at most {} are supported", name, reader.sizes.size(), kMaxRank);
  NpyArray array{reader.descr, element.dtype, {}, {}};
  int64_t total = element.bytes, above_one = 0, zeros = 0;
  bool fits = true;
  for (const int64_t n : reader.sizes) {
    fits = !__builtin_mul_overflow(total, n == 0 ? 1 : n, &total) && fits;  // without the zeros: strides fit as well
    above_one += n > 1 ? 1 : 0;
    zeros += n == 0 ? 1 : 0;
    array.shape.v[array.shape.rank++] = n;
  }
  if (!fits) fail("{}: the shape is too large", name);
  if (zeros > 0) total = 0;
  if (*reader.fortran && above_one > 1 && zeros == 0)
    fail("{}: is in Fortran order; store it with numpy.ascontiguousarray", name);
  array.data = take_bytes(bytes, start + length, static_cast<uint64_t>(total), name, "the array");
  const uint64_t behind = bytes.size() - (start + length + static_cast<uint64_t>(total));
  if (behind > 0) fail("{}: {} bytes lie behind the array", name, behind);
  return array;
}

std::vector<std::pair<std::string, NpyArray>> parse_npz(Bytes bytes, const std::string& name) {
  std::vector<std::pair<std::string, NpyArray>> arrays;
  uint64_t unused = bytes.size();
  for (const Member& m : read_directory(bytes, name)) {
    if (!m.name.ends_with(".npy")) continue;
    const std::string where = name + ": " + printable(m.name);
    arrays.emplace_back(m.name.substr(0, m.name.size() - 4), parse_npy(member_bytes(bytes, m, unused, where), where));
  }
  return arrays;
}

void write_npy(const fs::path& path, DType dtype, const Dims& shape, const void* data) {
  std::string descr;
  for (const Kind& k : kKinds)
    if (k.dtype == dtype) descr = (k.bytes == 1 ? "|" : "<") + std::string(k.code);
  if (descr.empty()) fail("{}: numpy has no {}; convert to f32 first", path.string(), name_of(dtype));
  std::string sizes;
  for (int i = 0; i < shape.rank; ++i) sizes += fmt::format("{}{}", i > 0 ? ", " : "", shape[i]);
  if (shape.rank == 1) sizes += ",";  // a tuple of one, as Python writes it
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, sizes);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';  // the data begins at a multiple of 64
  const uint16_t length = static_cast<uint16_t>(header.size());
  AtomicFile file(path);
  file.write(kMagic);
  file.write("\x01\x00", 2);
  file.write(&length, 2);
  file.write(header);
  const size_t bytes = static_cast<size_t>(shape.numel() * item_size(dtype));
  if (bytes > 0) file.write(data, bytes);
  file.commit();
}

NpyFile::NpyFile(const fs::path& path) : mapped_(path) {
  const Bytes bytes = mapped_.bytes();
  const bool zip = bytes.size() >= 2 && bytes[0] == std::byte{'P'} && bytes[1] == std::byte{'K'};
  if (zip)
    arrays_ = parse_npz(bytes, path.string());
  else
    arrays_.emplace_back("", parse_npy(bytes, path.string()));
}

const NpyArray& NpyFile::at(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& [n, array] : arrays_) {
    if (n == name) return array;
    names.push_back(n);
  }
  const std::string near = nearest(name, names);
  fail("{}: has no array {}{}", mapped_.path().string(), in_quotes(name),
       near.empty() ? "" : "; the nearest is " + printable(near));
}

}  // namespace tally
