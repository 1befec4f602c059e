// .npy and .npz against bytes as NumPy writes them (headers copied from its format description), and refusals.
#include "tally/io/npy.h"

#include <fstream>

#include "tally/io/corrupt.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::bytes_of;
using test::expect_error;

std::string npy(const std::string& dict, const std::string& data, int version = 1) {
  std::string header = dict;
  const size_t start = version == 1 ? 10 : 12;
  header.append(63 - (start + header.size()) % 64, ' ');
  header += '\n';
  const uint32_t length = static_cast<uint32_t>(header.size());
  return "\x93NUMPY" + std::string(1, static_cast<char>(version)) + std::string(1, '\0') +
         std::string(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4) + header + data;
}

std::string dict(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

void expect_refused(const std::string& content, const std::string& part) {
  expect_error([&] { parse_npy(bytes_of(content), "x.npy"); }, part);
  expect_error([&] { parse_npy(bytes_of(content), "x.npy"); }, "x.npy: ");
}

// A zip of stored members, as zipfile makes it; `crc` of each member is given.
struct ZipMember {
  std::string name, data;
  uint32_t crc = 0;
  uint16_t method = 0, flags = 0;
  bool zip64 = false;  // sizes in an extra field of both headers, as numpy does for the local one
};

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

std::string zip_of(const std::vector<ZipMember>& members) {
  std::string out, directory;
  for (const ZipMember& m : members) {
    const uint32_t offset = static_cast<uint32_t>(out.size()), size = static_cast<uint32_t>(m.data.size());
    std::string extra;
    if (m.zip64)
      put<uint16_t>(extra, 1), put<uint16_t>(extra, 16), put<uint64_t>(extra, size), put<uint64_t>(extra, size);
    const uint32_t stated = m.zip64 ? 0xFFFFFFFFu : size;
    put<uint32_t>(out, 0x04034b50), put<uint16_t>(out, 20), put(out, m.flags), put(out, m.method),
        put<uint32_t>(out, 0);
    put(out, m.crc), put(out, stated), put(out, stated);
    put<uint16_t>(out, static_cast<uint16_t>(m.name.size())), put<uint16_t>(out, static_cast<uint16_t>(extra.size()));
    out += m.name + extra + m.data;
    put<uint32_t>(directory, 0x02014b50), put<uint16_t>(directory, 20), put<uint16_t>(directory, 20);
    put(directory, m.flags), put(directory, m.method), put<uint32_t>(directory, 0);
    put(directory, m.crc), put(directory, stated), put(directory, stated);
    put<uint16_t>(directory, static_cast<uint16_t>(m.name.size()));
    put<uint16_t>(directory, static_cast<uint16_t>(extra.size()));
    put<uint16_t>(directory, 0), put<uint16_t>(directory, 0), put<uint16_t>(directory, 0), put<uint32_t>(directory, 0);
    put(directory, offset);
    directory += m.name + extra;
  }
  const uint32_t at = static_cast<uint32_t>(out.size());
  out += directory;
  put<uint32_t>(out, 0x06054b50), put<uint32_t>(out, 0);
  put<uint16_t>(out, static_cast<uint16_t>(members.size())), put<uint16_t>(out, static_cast<uint16_t>(members.size()));
  put<uint32_t>(out, static_cast<uint32_t>(directory.size())), put(out, at), put<uint16_t>(out, 0);
  return out;
}

// Bitwise, to check the table-driven one against.
uint32_t slow_crc32(const std::string& data) {
  uint32_t crc = ~0u;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

TEST(Npy, ReadsAllVersionsAndKinds) {
  for (const int version : {1, 2, 3}) {
    const std::string content = npy(dict("<f4", "(2, 3)"), std::string(24, 'x'), version);
    const NpyArray a = parse_npy(bytes_of(content), "x.npy");
    EXPECT_EQ(a.dtype, DType::kF32);
    EXPECT_EQ(a.shape, Dims(2, 3));
    EXPECT_EQ(a.data.size(), 24u);
  }
  const std::vector<std::pair<std::string, DType>> kinds = {{"<f8", DType::kF64}, {"<i8", DType::kI64},
                                                            {"<i4", DType::kI32}, {"<u2", DType::kU16},
                                                            {"|u1", DType::kU8},  {"<f4", DType::kF32}};
  for (const auto& [descr, dtype] : kinds) {
    const std::string content = npy(dict(descr, "()"), std::string(static_cast<size_t>(item_size(dtype)), '\1'));
    EXPECT_EQ(parse_npy(bytes_of(content), "x.npy").dtype, dtype);
    EXPECT_EQ(parse_npy(bytes_of(content), "x.npy").shape, Dims());
  }
  EXPECT_FALSE(parse_npy(bytes_of(npy(dict("<u4", "(1,)"), "1234")), "x.npy").dtype.has_value());
  EXPECT_EQ(parse_npy(bytes_of(npy(dict("<f4", "(0, 5)"), "")), "x.npy").shape, Dims(0, 5));
  EXPECT_EQ(parse_npy(bytes_of(npy(dict("<i4", "(2L,)"), "12345678")), "x.npy").shape, Dims(2));
  EXPECT_EQ(parse_npy(bytes_of(npy(dict("<i4", "(1, 2)", "True"), "12345678")), "x.npy").shape, Dims(1, 2));
}

TEST(Npy, Strings) {
  // "aé€😀" in UTF-32, padded to six characters.
  const uint32_t characters[6] = {'a', 0xE9, 0x20AC, 0x1F600, 0, 0};
  const std::string utf32(reinterpret_cast<const char*>(characters), sizeof characters);
  const std::string content = npy(dict("<U6", "()"), utf32);
  const NpyArray a = parse_npy(bytes_of(content), "x.npy");
  EXPECT_FALSE(a.dtype.has_value());
  EXPECT_EQ(a.text("x.npy"), "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  const std::string bytes = npy(dict("|S4", "()"), std::string("ab\0\0", 4));
  EXPECT_EQ(parse_npy(bytes_of(bytes), "x.npy").text("x.npy"), "ab");
  const std::string wrong = npy(dict("<U1", "()"), "\xff\xff\xff\xff");
  expect_error([&] { parse_npy(bytes_of(wrong), "x.npy").text("x.npy"); }, "which is no character");
  const std::string number = npy(dict("<f4", "()"), "1234");
  expect_error([&] { parse_npy(bytes_of(number), "x.npy").text("x.npy"); }, "is not a single string");
}

TEST(Npy, Refusals) {
  expect_refused("", "truncated: the .npy header needs 10 bytes at offset 0, 10 missing");
  expect_refused("not a npy file", "is not a .npy file");
  expect_refused(npy(dict("<f4", "(2,)"), "1234567"), "the array needs 8 bytes at offset 128, 1 missing");
  expect_refused(npy(dict("<f4", "(2,)"), "123456789"), "1 bytes lie behind the array");
  expect_refused(npy(dict("<f4", "(2, 2)", "True"), std::string(16, 'x')), "Fortran order");
  expect_refused(npy(dict(">f4", "(2,)"), "12345678"), "not little-endian");
  expect_refused(npy(dict("\nU1", "()"), "1234"), "kind \\nU1 are not little-endian");  // the byte order was shown raw
  expect_refused(npy(dict("<c8", "(1,)"), "12345678"), "\"<c8\" cannot be read");
  expect_refused(npy(dict("|O", "(1,)"), "12345678"), "\"|O\" cannot be read");
  expect_refused(npy(dict("<f\n4", "(1,)"), "1234"), "kind \"<f\\n4\" cannot be read");
  expect_refused(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234"), "structured");
  expect_refused(npy("{'descr': '<f4', 'shape': (1,)}", "1234"), "is missing");
  expect_refused(npy("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}", "1234"), "neither True nor False");
  expect_refused(npy(dict("<f4", "(-1,)"), "1234"), "not a tuple of sizes");
  expect_refused(npy(dict("<f4", "(4611686018427387904, 4)"), "1234"), "too large");
  expect_refused(npy(dict("<f4", "(1,1,1,1,1,1,1,1,1)"), "1234"), "9 axes");
  expect_refused(npy(dict("<f4", "(99999999999999999999,)"), "1234"), "not a tuple of sizes");
  expect_refused("\x93NUMPY\x09" + std::string(5, '\0'), "version 9 is not known");
}

TEST(Npy, WritesWhatItReads) {
  const test::TempFolder folder;
  const std::vector<int32_t> values = {1, -2, 3, 4, 5, 6};
  for (const Dims& shape : {Dims(2, 3), Dims(6), Dims(), Dims(0), Dims(1, 2, 3)}) {
    write_npy(folder / "a.npy", DType::kI32, shape, values.data());
    const NpyFile file(folder / "a.npy");
    const NpyArray& a = file.at("");
    EXPECT_EQ(a.shape, shape);
    EXPECT_EQ(a.dtype, DType::kI32);
    EXPECT_EQ(std::memcmp(a.data.data(), values.data(), a.data.size()), 0);
    EXPECT_EQ((fs::file_size(folder / "a.npy") - a.data.size()) % 64, 0u);
  }
  EXPECT_EQ(read_file(folder / "a.npy").substr(10, 60), "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2, 3),");
  expect_error([&] { write_npy(folder / "b.npy", DType::kBF16, Dims(1), values.data()); }, "numpy has no bf16");
  expect_error([&] { NpyFile(folder / "none.npy"); }, "none.npy: no such file");
}

TEST(Npy, EveryDtypeThatNumpyHas) {
  const test::TempFolder folder;
  const std::vector<double> values = {1, -2, 3.5};
  const std::pair<DType, const char*> rows[] = {
      {DType::kF64, "<f8"}, {DType::kF32, "<f4"}, {DType::kF16, "<f2"}, {DType::kI64, "<i8"}, {DType::kI32, "<i4"},
      {DType::kI16, "<i2"}, {DType::kU16, "<u2"}, {DType::kI8, "|i1"},  {DType::kU8, "|u1"},  {DType::kBool, "|b1"}};
  for (const auto& [dtype, descr] : rows) {
    write_npy(folder / "a.npy", dtype, Dims(3), values.data());
    const NpyFile file(folder / "a.npy");
    EXPECT_EQ(file.at("").dtype, dtype);
    EXPECT_EQ(file.at("").descr, descr);
    EXPECT_EQ(file.at("").data.size(), static_cast<size_t>(3 * item_size(dtype)));
    EXPECT_EQ(std::memcmp(file.at("").data.data(), values.data(), file.at("").data.size()), 0);
  }
  for (const DType t : {DType::kF8E4M3, DType::kF8E5M2, DType::kF8E8M0, DType::kF4E2M1x2})
    expect_error([&] { write_npy(folder / "b.npy", t, Dims(3), values.data()); }, "numpy has no f");
}

TEST(Npy, NpzOfStoredMembers) {
  const test::TempFolder folder;
  const std::string a = npy(dict("<f4", "(2,)"), "12345678"), b = npy(dict("|u1", "(3,)"), "abc");
  for (const bool zip64 : {false, true}) {
    std::ofstream(folder / "x.npz", std::ios::binary)
        << zip_of({{"w.a.npy", a, slow_crc32(a), 0, 0, zip64}, {"b.npy", b, slow_crc32(b), 0, 0, zip64}});
    const NpyFile file(folder / "x.npz");
    ASSERT_EQ(file.arrays().size(), 2u);
    EXPECT_EQ(file.at("w.a").shape, Dims(2));
    EXPECT_EQ(std::memcmp(file.at("b").data.data(), "abc", 3), 0);
    expect_error([&] { file.at("w.b"); }, "has no array \"w.b\"; the nearest is w.a");
  }
}

TEST(Npy, NpzRefusals) {
  const std::string a = npy(dict("<f4", "(2,)"), "12345678");
  const auto refused = [](const std::string& content, const std::string& part) {
    expect_error([&] { parse_npz(bytes_of(content), "x.npz"); }, part);
  };
  refused(zip_of({{"a.npy", a, slow_crc32(a), 8}}), "x.npz: a.npy: is compressed; save it with numpy.savez");
  refused(zip_of({{"a.npy", a, 1}}), "x.npz: a.npy: the checksum does not match");
  refused(zip_of({{"a.npy", a, slow_crc32(a), 0, 1}}), "is encrypted");
  refused(zip_of({{"a\n.npy", "x"}}), "x.npz: a\\n.npy: the checksum does not match");
  // A thousand entries for one member, each of which would be summed.
  const std::string large = npy(dict("|u1", "(50000,)"), std::string(50'000, 'x'));
  std::vector<ZipMember> many(1000, {"b.npy", "", 0});
  many.front() = {"a.npy", large, slow_crc32(large)};
  std::string shared = zip_of(many);
  const size_t first = shared.find("PK\1\2");
  for (size_t at = shared.find("PK\1\2", first + 1); at != std::string::npos; at = shared.find("PK\1\2", at + 1))
    shared.replace(at + 16, 30, shared, first + 16, 30);
  refused(shared, "x.npz: b.npy: shares its bytes with another member");
  const std::string whole = zip_of({{"a.npy", a, slow_crc32(a)}});
  refused(whole.substr(0, whole.size() - 1), "its directory (the last 22 bytes) is missing");
  refused("", "its directory");
}

TEST(Npy, ReadsAnArchiveThatNumpyWrote) {
  TALLY_SHARED_FILE(path, "cs336/a1/oracle_lm_dev.npz");
  const NpyFile file(path);
  EXPECT_EQ(file.at("w.layers.0.attn.q_proj.weight").shape, Dims(64, 64));
  EXPECT_EQ(file.at("w.layers.0.attn.q_proj.weight").dtype, DType::kF32);
  EXPECT_TRUE(file.at("meta").text("meta").starts_with('{'));
  TALLY_SHARED_FILE(small, "cs336/a1/test_rope.npz");
  EXPECT_FALSE(NpyFile(small).arrays().empty());
}

TEST(Npy, EveryChangedByteLoadsOrIsRefused) {
  const std::string a = npy(dict("<i4", "(2, 1)"), "12345678");
  const test::CorruptCounts one = test::try_corrupted(a, "x.np", [](Bytes b) { parse_npy(b, "x.npy"); });
  EXPECT_GT(one.loaded, 100);
  EXPECT_GT(one.refused, 500);
  for (const bool zip64 : {false, true}) {
    const std::string zip = zip_of({{"a.npy", a, slow_crc32(a), 0, 0, zip64}});
    const test::CorruptCounts two = test::try_corrupted(zip, "x.np", [](Bytes b) { parse_npz(b, "x.npz"); });
    EXPECT_GT(two.loaded, 100);
    EXPECT_GT(two.refused, 1000);
  }
}

TEST(Ids, RawFilesAsNumpyToFileMakesThem) {
  const test::TempFolder folder;
  const std::vector<int32_t> ids = {0, 1, 65535, 7};
  for (const IdType t : {IdType::kU16, IdType::kU32, IdType::kI32, IdType::kI64, IdType::kU64}) {
    write_raw_ids(folder / "ids", ids, t);
    const MappedFile file(folder / "ids");
    const IdSpan span = parse_raw_ids(file.bytes(), t, "ids");
    ASSERT_EQ(span.size(), 4);
    std::vector<int32_t> back(3);
    EXPECT_EQ(span.copy(1, 3, 65536, back.data()), -1);
    EXPECT_EQ(back, (std::vector<int32_t>{1, 65535, 7}));
    EXPECT_EQ(span.copy(0, 4, 100, std::vector<int32_t>(4).data()), 2);  // the first id that is too large
    EXPECT_EQ(id_type_from_name(id_type_name(t)), t);
  }
  EXPECT_EQ(id_type_from_name("f32"), std::nullopt);
  const std::string odd = "12345";
  expect_error([&] { parse_raw_ids(bytes_of(odd), IdType::kU16, "x.u16"); },
               "x.u16: its 5 bytes are not a multiple of 2");
  const std::vector<int32_t> large = {65536}, negative = {-1};
  expect_error([&] { write_raw_ids(folder / "y", large, IdType::kU16); }, "token id 65536 does not fit into u16");
  expect_error([&] { write_raw_ids(folder / "y", negative, IdType::kU32); }, "token id -1 does not fit into u32");
  EXPECT_FALSE(fs::exists(folder / "y"));
}

TEST(Ids, NegativeAndHugeIdsAreFound) {
  const int32_t negative[] = {3, -1};
  const uint64_t huge[] = {1ull << 63, 2};
  const int64_t far[] = {5, 1ll << 32};
  int32_t out[2];
  EXPECT_EQ((IdSpan{IdType::kI32, std::as_bytes(std::span(negative))}.copy(0, 2, 10, out)), 1);
  EXPECT_EQ((IdSpan{IdType::kU64, std::as_bytes(std::span(huge))}.copy(0, 2, INT64_MAX, out)), 0);
  EXPECT_EQ((IdSpan{IdType::kI64, std::as_bytes(std::span(far))}.copy(0, 2, INT64_MAX, out)), 1);
}

}  // namespace
}  // namespace tally
