// The container's rules one by one, the traps O18 and O19, and changed bytes.
#include "tally/io/safetensors.h"

#include <fstream>

#include "tally/base/json.h"
#include "tally/io/corrupt.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::bytes_of;
using test::expect_error;

std::string container(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

SafeTensors parse(const std::string& content) { return SafeTensors::parse(bytes_of(content), "m.safetensors"); }

// The file must outlive what is parsed from it, so errors only.
void expect_refused(const std::string& header, const std::string& data, const std::string& part) {
  const std::string content = container(header, data);
  expect_error([&] { parse(content); }, part);
  expect_error([&] { parse(content); }, "m.safetensors");
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

TEST(Safetensors, WritesAndReadsEveryDType) {
  const test::TempFolder folder;
  const fs::path path = folder / "all.safetensors";
  const std::vector<double> numbers = {1, -2, 3.5, 1e300, 5, 6};
  std::vector<SafeItem> items;
  for (int d = 0; d < kDTypes; ++d)
    items.push_back({"t" + std::to_string(d), static_cast<DType>(d), Dims(2, 3), numbers.data()});
  items.push_back({"empty", DType::kF32, Dims(4, 0), nullptr});
  items.push_back({"scalar \"q\"", DType::kF32, Dims(), numbers.data()});
  write_safetensors(path, items, {{"step", "20"}, {"name", "a\nb"}});
  EXPECT_EQ(fs::file_size(path), safetensors_bytes(items, {{"step", "20"}, {"name", "a\nb"}}));
  const SafeTensors file(path);
  ASSERT_EQ(file.tensors().size(), items.size());
  for (const SafeItem& item : items) {
    const SafeTensor& t = file.at(item.name);
    EXPECT_EQ(t.dtype, item.dtype);
    EXPECT_EQ(t.shape, item.shape);
    ASSERT_EQ(t.data.size(), static_cast<size_t>(item.shape.numel() * item_size(item.dtype)));
    if (!t.data.empty()) {
      EXPECT_EQ(std::memcmp(t.data.data(), item.data, t.data.size()), 0);
    }
  }
  EXPECT_EQ(*file.find_metadata("step"), "20");
  EXPECT_EQ(*file.find_metadata("name"), "a\nb");
  EXPECT_EQ(file.find_metadata("none"), nullptr);
  EXPECT_EQ(file.find("none"), nullptr);
  const std::string first = read_file(path);
  write_safetensors(path, items, {{"step", "20"}, {"name", "a\nb"}});
  EXPECT_EQ(read_file(path), first);
}

TEST(Safetensors, HeaderIsExactAndPadded) {
  const float x = 2.5f;
  const std::string header = safetensors_header({{"a", DType::kF32, Dims(), &x}}, {});
  EXPECT_EQ(header.size() % 8, 0u);
  EXPECT_EQ(header.substr(8), "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}   ");
  EXPECT_EQ(load_number<uint64_t>(bytes_of(header), 0), header.size() - 8);
}

TEST(Safetensors, NothingToWriteIsLegal) {
  const test::TempFolder folder;
  write_safetensors(folder / "e", {});
  EXPECT_TRUE(SafeTensors(folder / "e").tensors().empty());
}

TEST(Safetensors, WriterRefusesBadItems) {
  const float x = 0;
  expect_error(
      [&] {
        safetensors_header({{"a", DType::kF32, Dims(), &x}, {"a", DType::kF32, Dims(), &x}}, {});
      },
      "tensor a would stand twice");
  expect_error([&] { safetensors_header({{"__metadata__", DType::kF32, Dims(), &x}}, {}); }, "reserved");
  expect_error(
      [&] {
        safetensors_header({{"a", DType::kF32, Dims(int64_t{1} << 40, int64_t{1} << 40), &x}}, {});
      },
      "too large");
}

TEST(Safetensors, DTypesTallyDoesNotUseAreListedAndRefusedByName) {
  const std::string content = container(
      "{\"q\":" + entry("U32", "[3]", "[0,12]") + ",\"n\":" + entry("NEW", "[3]", "[12,14]") + "}", "12345678901234");
  const SafeTensors file = parse(content);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].dtype_name, "U32");
  EXPECT_FALSE(file.tensors()[0].dtype.has_value());
  expect_error([&] { file.at("q"); }, "m.safetensors: tensor \"q\" is \"U32\"");
  expect_error([&] { file.at("q"); }, "F8_E8M0");  // one of those that can be loaded
  expect_error([&] { file.at("n"); }, "\"NEW\"");
  expect_error([&] { file.at("p"); }, "has no tensor \"p\"; the nearest is");
}

// The file counts numbers, Tally (as PyTorch) bytes of two.
TEST(Safetensors, F4LiesInPairs) {
  const uint8_t codes[6] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA};
  const std::string header = safetensors_header({{"a", DType::kF4E2M1x2, Dims(2, 3), codes}}, {});
  EXPECT_NE(header.find("\"dtype\":\"F4\",\"shape\":[2,6],\"data_offsets\":[0,6]"), std::string::npos) << header;
  const std::string content = header + std::string(reinterpret_cast<const char*>(codes), 6);
  const SafeTensors file = parse(content);
  EXPECT_EQ(file.at("a").dtype, DType::kF4E2M1x2);
  EXPECT_EQ(file.at("a").shape, Dims(2, 3));
  expect_refused("{\"a\":" + entry("F4", "[2,3]", "[0,3]") + "}", "123", "is odd; F4 lies in pairs");
  expect_error([&] { safetensors_header({{"a", DType::kF4E2M1x2, Dims(), codes}}, {}); }, "needs an axis");
}

TEST(Safetensors, HeaderRules) {
  const std::string ok = entry("F32", "[1]", "[0,4]");
  expect_refused("[1]", "", "does not begin with {");
  expect_refused(" {}", "", "does not begin with {");
  expect_refused("{\"a\":" + ok, "1234", "m.safetensors (header):1:");
  expect_refused("{\"a\":" + ok + ",\"a\":" + ok + "}", "1234", "\"a\" stands twice");
  expect_refused("{\"a\":3}", "", "tensor \"a\": must be an object");
  expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "1234", "data_offsets is missing");
  expect_refused("{\"a\":" + entry("F32", "[1]", "[0]") + "}", "1234", "data_offsets must be two numbers");
  expect_refused("{\"a\":" + entry("F32", "[-1]", "[0,4]") + "}", "1234", "shape must hold whole numbers from 0");
  expect_refused("{\"a\":" + entry("F32", "[1.5]", "[0,4]") + "}", "1234", "shape must hold whole numbers from 0");
  expect_refused("{\"a\":" + entry("F32", "[1]", "[4,0]") + "}", "1234", "ends (0) before it begins (4)");
  expect_refused("{\"a\":" + entry("F32", "[1]", "[4,8]") + "}", "12345678", "there is a hole");
  expect_refused("{\"a\":" + ok + "}", "12345", "1 bytes lie behind the last tensor");
  expect_refused("{\"a\":" + ok + "}", "12", "truncated: the tensors need 4 bytes, 2 missing");
  expect_refused("{\"a\":" + entry("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", "1234", "9 axes; at most 8");
  expect_refused("{\"a\":" + entry("F32", "[4294967296,4294967296,4294967296]", "[0,4]") + "}", "1234", "too large");
  expect_refused("{\"a\":" + entry("F32", "[9223372036854775807]", "[0,4]") + "}", "1234", "too large");
  expect_refused("{\"a\":" + entry("F32", "[0,4611686018427387904,4]", "[0,0]") + "}", "", "too large");
  expect_refused("{\"a\":" + entry("F4", "[3]", "[0,2]") + "}", "12", "is 2 bytes, but");
  expect_refused("{\"__metadata__\":{\"k\":1}}", "", "must hold strings only; \"k\" is not one");
  expect_refused("{\"__metadata__\":[]}", "", "must be an object of strings");
}

// Cut to 0, 1, 7, 8, 9 bytes, to half and by one byte: the file and the missing bytes are named.
TEST(Safetensors, O18bTruncatedFiles) {
  const test::TempFolder folder;
  const fs::path path = folder / "model.safetensors";
  const std::vector<float> values(1000, 1.0f);
  write_safetensors(path, {{"w", DType::kF32, Dims(1000), values.data()}}, {{"step", "3"}});
  const std::string whole = read_file(path);
  const size_t header = static_cast<size_t>(load_number<uint64_t>(bytes_of(whole), 0));
  const size_t data = whole.size() - 8 - header;
  const std::vector<std::pair<size_t, size_t>> cuts = {{0, 8},
                                                       {1, 7},
                                                       {7, 1},
                                                       {8, header},
                                                       {9, header - 1},
                                                       {whole.size() / 2, whole.size() - whole.size() / 2},
                                                       {whole.size() - 1, 1}};
  for (const auto& [size, missing] : cuts) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    expect_error([&] { SafeTensors{path}; }, "model.safetensors: truncated");
    expect_error([&] { SafeTensors{path}; }, " " + std::to_string(missing) + " missing");
  }
  EXPECT_EQ(data, 4000u);
}

TEST(Safetensors, O19aShapeBeyondTheBytes) {
  expect_refused("{\"t\":" + entry("F32", "[1000,1000]", "[0,4]") + "}", std::string(4, '\0'),
                 "shape [1000,1000] of F32 is 4000000 bytes, but data_offsets give 4");
}

TEST(Safetensors, O19bTwoNamesOnOneRange) {
  expect_refused("{\"k\":" + entry("F32", "[1]", "[0,4]") + ",\"v\":" + entry("F32", "[1]", "[0,4]") + "}", "1234",
                 "two tensors share bytes");
}

TEST(Safetensors, O19cHeaderLengthIsNotAllocated) {
  const std::string content("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
  expect_error([&] { parse(content); }, "the header length is 9223372036854775807; at most 100000000");
  const uint64_t near = 99'999'999;  // allowed, but not there
  expect_error([&] { parse(std::string(reinterpret_cast<const char*>(&near), 8) + "{}"); }, "99999997 missing");
}

TEST(Safetensors, O19dEmptyIsLegal) {
  const std::string content = container(
      "{\"__metadata__\":{},\"z\":" + entry("BF16", "[0]", "[0,0]") + ",\"a\":" + entry("F32", "[]", "[0,4]") + "}",
      std::string("\0\0\x20\x40", 4));
  const SafeTensors file = parse(content);
  EXPECT_EQ(file.at("z").shape, Dims(0));
  EXPECT_TRUE(file.at("z").data.empty());
  EXPECT_EQ(file.at("a").shape, Dims());
  EXPECT_EQ(load_number<float>(file.at("a").data, 0), 2.5f);
  EXPECT_TRUE(file.metadata().empty());
}

TEST(Safetensors, O19AsRecorded) {
  TALLY_SHARED_FILE(path, "traps.json");
  int seen = 0;
  const Json traps = Json::parse(read_file(path), path.string());
  for (const Json& trap : traps.as_array()) {
    const std::string id = trap.at("id").as_string();
    if (!id.starts_with("O19")) continue;
    ++seen;
    const std::string digits = trap.at("input").at("hex").as_string();
    std::string content;
    for (size_t i = 0; i + 1 < digits.size(); i += 2)
      content += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
    if (trap.at("class").as_string() == "file-error") {
      EXPECT_THROW(parse(content), Error) << id;
    } else {
      EXPECT_EQ(load_number<float>(parse(content).at("a").data, 0), 2.5f) << id;
    }
  }
  EXPECT_EQ(seen, 4);
}

TEST(Safetensors, EveryChangedByteLoadsOrIsRefused) {
  const std::string valid = container("{\"__metadata__\":{\"k\":\"v\"},\"a\":" + entry("F32", "[2]", "[0,8]") +
                                          ",\"b\":" + entry("U8", "[1,3]", "[8,11]") + "}",
                                      "12345678abc");
  parse(valid);
  const test::CorruptCounts counts =
      test::try_corrupted(valid, "m.safetensors", [](Bytes b) { SafeTensors::parse(b, "m.safetensors"); });
  EXPECT_GT(counts.loaded, 100);
  EXPECT_GT(counts.refused, 1000);
}

}  // namespace
}  // namespace tally
