// Shards: the layout stands in shard.h. The header is written last, over the zeros that keep its place.
#include "tally/io/shard.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>

#include "tally/base/error.h"

namespace tally {
namespace {

constexpr std::string_view kMagic = "TALLYTOK";
constexpr size_t kHeaderBytes = 256, kUsedBytes = 64;
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMostTokens = uint64_t{1} << 60;  // products with 8 stay inside u64

template <class T>
void store_number(std::array<std::byte, kHeaderBytes>& header, size_t offset, T value) {
  std::memcpy(header.data() + offset, &value, sizeof(T));
}

}  // namespace

std::string hex(const TokenizerHash& hash) {
  std::string text;
  for (const uint8_t b : hash) text += fmt::format("{:02x}", b);
  return text;
}

TokenizerHash tokenizer_hash_from_hex(std::string_view digits, const std::string& where) {
  TokenizerHash hash{};
  bool valid = digits.size() == 2 * hash.size();
  for (size_t i = 0; valid && i < hash.size(); ++i) {
    const char* begin = digits.data() + 2 * i;
    const auto [end, status] = std::from_chars(begin, begin + 2, hash[i], 16);
    valid = status == std::errc() && end == begin + 2;
  }
  if (!valid) fail("{}: a tokenizer hash is 32 hexadecimal digits", where);
  return hash;
}

Shard::Shard(const fs::path& path) : mapped_(path), name_(path.string()) { read(mapped_.bytes()); }

Shard Shard::parse(Bytes bytes, const std::string& name) {
  Shard shard;
  shard.name_ = name;
  shard.read(bytes);
  return shard;
}

void Shard::read(Bytes bytes) {
  const Bytes magic = bytes.first(std::min(bytes.size(), kMagic.size()));
  if (!magic.empty() && std::memcmp(magic.data(), kMagic.data(), magic.size()) != 0)
    fail("{}: is not a .tok shard (it does not begin with {})", name_, kMagic);
  const Bytes head = take_bytes(bytes, 0, kHeaderBytes, name_, "the shard header");
  const uint32_t version = load_number<uint32_t>(head, 8), code = load_number<uint32_t>(head, 12);
  if (version != kVersion) fail("{}: shard version {} is not known (only {} is)", name_, version, kVersion);
  if (code != static_cast<uint32_t>(IdType::kU16) && code != static_cast<uint32_t>(IdType::kU32))
    fail("{}: shard dtype {} is not known (1 = u16, 2 = u32)", name_, code);
  for (size_t i = kUsedBytes; i < kHeaderBytes; ++i)
    if (head[i] != std::byte{0}) fail("{}: the shard header is damaged at offset {}", name_, i);
  const uint64_t tokens = load_number<uint64_t>(head, 16), documents = load_number<uint64_t>(head, 24);
  if (tokens > kMostTokens || documents > kMostTokens)
    fail("{}: the shard header is damaged: {} tokens, {} documents", name_, tokens, documents);
  const IdType type = static_cast<IdType>(code);
  const uint64_t token_bytes = tokens * static_cast<uint64_t>(id_bytes(type));
  const uint64_t expected = kHeaderBytes + token_bytes + documents * 8;
  if (bytes.size() < expected)
    fail("{}: truncated: {} bytes expected, {} found, {} missing", name_, expected, bytes.size(),
         expected - bytes.size());
  if (bytes.size() > expected) fail("{}: {} bytes lie behind the shard's end", name_, bytes.size() - expected);
  std::memcpy(hash_.data(), head.data() + 32, hash_.size());
  ids_sum_ = load_number<uint64_t>(head, 48), ends_sum_ = load_number<uint64_t>(head, 56);
  ids_ = {type, bytes.subspan(kHeaderBytes, token_bytes)};
  ends_ = bytes.subspan(kHeaderBytes + token_bytes);
}

int64_t Shard::document_end(int64_t document) const {
  TALLY_ASSERT(document >= 0 && document < documents());
  const uint64_t end = load_number<uint64_t>(ends_, static_cast<size_t>(document) * 8);
  if (end > static_cast<uint64_t>(tokens()))
    fail("{}: damaged: document {} ends at {}, behind the {} tokens", name_, document, end, tokens());
  return static_cast<int64_t>(end);
}

void Shard::verify() const {
  const auto check = [&](Bytes part, uint64_t expected, const char* what) {
    const uint64_t found = XXH3_64bits(part.data(), part.size());
    if (found != expected)
      fail("{}: damaged: the {} have the sum {:016x}, the header says {:016x}", name_, what, found, expected);
  };
  check(ids_.data, ids_sum_, "tokens");
  check(ends_, ends_sum_, "document ends");
  int64_t before = 0;
  for (int64_t i = 0; i < documents(); ++i) {
    const int64_t end = document_end(i);
    if (end < before) fail("{}: damaged: document {} ends at {}, before the one in front of it", name_, i, end);
    before = end;
  }
}

void Shard::require_tokenizer(const TokenizerHash& hash) const {
  if (hash != hash_)
    fail("{}: was made by the tokenizer {}, not by {}; build the data again with this tokenizer", name_, hex(hash_),
         hex(hash));
}

struct ShardWriter::Sums {
  XXH3_state_t* state = XXH3_createState();
  Sums() { XXH3_64bits_reset(state); }
  Sums(const Sums&) = delete;
  Sums& operator=(const Sums&) = delete;
  ~Sums() { XXH3_freeState(state); }
};

ShardWriter::ShardWriter(const fs::path& path, int64_t vocab_size, const TokenizerHash& hash)
    : file_(path),
      name_(path.string()),
      vocab_size_(vocab_size),
      type_(vocab_size <= 65536 ? IdType::kU16 : IdType::kU32),
      hash_(hash),
      sums_(std::make_unique<Sums>()) {
  if (vocab_size < 1 || vocab_size > INT32_MAX)
    fail("{}: a vocabulary of {} entries is not possible", name_, vocab_size);
  const std::array<std::byte, kHeaderBytes> zeros{};
  file_.write(zeros.data(), zeros.size());
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::add(std::span<const int32_t> ids) {
  for (const int32_t id : ids)
    if (id < 0 || id >= vocab_size_) fail("{}: token id {} is outside the vocabulary of {}", name_, id, vocab_size_);
  constexpr size_t kPart = 1 << 16;
  for (size_t at = 0; at < ids.size(); at += kPart) {
    buffer_.clear();
    encode_ids(ids.subspan(at, std::min(kPart, ids.size() - at)), type_, buffer_, name_);
    XXH3_64bits_update(sums_->state, buffer_.data(), buffer_.size());
    file_.write(buffer_.data(), buffer_.size());
  }
  tokens_ += ids.size();
}

void ShardWriter::end_document() { ends_.push_back(tokens_); }

void ShardWriter::commit() {
  const size_t end_bytes = ends_.size() * 8;
  if (end_bytes > 0) file_.write(ends_.data(), end_bytes);
  std::array<std::byte, kHeaderBytes> header{};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  store_number(header, 8, kVersion);
  store_number(header, 12, static_cast<uint32_t>(type_));
  store_number(header, 16, tokens_);
  store_number(header, 24, uint64_t{ends_.size()});
  std::memcpy(header.data() + 32, hash_.data(), hash_.size());
  store_number(header, 48, uint64_t{XXH3_64bits_digest(sums_->state)});
  store_number(header, 56, uint64_t{XXH3_64bits(ends_.data(), end_bytes)});
  file_.write_at(0, header.data(), header.size());
  file_.commit();
}

}  // namespace tally
