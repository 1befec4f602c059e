// .tok shards, as they come and once more with the right sums put in, which mutation would not find: what verify()
// accepts is written again byte for byte.
#include "tally/io/shard.h"

#include <xxhash.h>

#include "tests/fuzz/fuzz.h"

namespace tally::fuzz {
namespace {

constexpr const char* kName = "x.tok";

// The token ids, or empty when one is outside int32.
std::vector<int32_t> ids_of(const Shard& shard) {
  std::vector<int32_t> ids(static_cast<size_t>(shard.tokens()));
  const int64_t bad = shard.ids().copy(0, shard.tokens(), INT32_MAX, ids.data());
  const auto wide = [&](int64_t i) -> uint32_t {
    const size_t at = static_cast<size_t>(i * id_bytes(shard.ids().type));
    if (shard.ids().type == IdType::kU16) return load_number<uint16_t>(shard.ids().data, at);
    return load_number<uint32_t>(shard.ids().data, at);
  };
  const int64_t end = bad < 0 ? shard.tokens() : bad;
  for (int64_t i = 0; i < end; ++i)
    require(wide(i) == static_cast<uint32_t>(ids[static_cast<size_t>(i)]), "an id changed");
  if (bad >= 0) require(wide(bad) >= uint32_t{INT32_MAX}, "an id that fits was refused");
  return bad < 0 ? ids : std::vector<int32_t>{};
}

void write_again(const Shard& shard, const std::vector<int32_t>& ids, const fs::path& path) {
  ShardWriter writer(path, shard.ids().type == IdType::kU16 ? 65536 : INT32_MAX, shard.tokenizer_hash());
  size_t at = 0;
  for (int64_t i = 0; i < shard.documents(); ++i) {
    const size_t end = static_cast<size_t>(shard.document_end(i));
    writer.add(std::span(ids).subspan(at, end - at));
    writer.end_document();
    at = end;
  }
  writer.add(std::span(ids).subspan(at));
  writer.commit();
}

void check(Bytes input) {
  Shard shard;
  if (!accepted(kName, [&] { shard = Shard::parse(input, kName); })) return;
  require(inside(shard.ids().data, input), "the tokens are outside the file");
  bool ends_inside = true;
  for (int64_t i = 0; i < shard.documents(); ++i)
    ends_inside &= accepted(kName, [&] { require(shard.document_end(i) <= shard.tokens(), "an end is outside"); });
  accepted(kName, [&] { shard.require_tokenizer({}); });
  const std::vector<int32_t> ids = ids_of(shard);
  if (!accepted(kName, [&] { shard.verify(); })) return;
  require(ends_inside, "verify() let a wrong end pass");
  if (ids.size() < static_cast<size_t>(shard.tokens())) return;
  const fs::path path = scratch_folder() / "again.tok";
  write_again(shard, ids, path);
  require(equal(MappedFile(path).bytes(), input), "the shard changed when it was written again");
}

std::string with_right_sums(Bytes input) {
  constexpr size_t kHeader = 256;
  std::string text = text_of(input);
  if (text.size() < kHeader) return text;
  const uint64_t width = load_number<uint32_t>(input, 12) == 1 ? 2 : 4;
  const uint64_t rest = text.size() - kHeader;
  const uint64_t tokens = std::min(load_number<uint64_t>(input, 16), rest / width) * width;
  const uint64_t sums[] = {XXH3_64bits(text.data() + kHeader, tokens),
                           XXH3_64bits(text.data() + kHeader + tokens, rest - tokens)};
  std::memcpy(text.data() + 48, sums, sizeof sums);
  return text;
}

}  // namespace
}  // namespace tally::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tally::fuzz;
  check(bytes_of(data, size));
  const std::string summed = with_right_sums(bytes_of(data, size));
  const std::vector<char> exact(summed.begin(), summed.end());
  check({reinterpret_cast<const std::byte*>(exact.data()), exact.size()});
  return 0;
}
