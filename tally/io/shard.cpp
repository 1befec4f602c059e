// Shards: the layout stands in shard.h. The header is written last, over the zeros that keep its place.
#include "tally/io/shard.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>

#include "tally/base/error.h"

namespace tally {
namespace {

constexpr std::string_view kMagic = "TALLYTOK";
constexpr size_t kUsedBytes = 64;
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMostTokens = uint64_t{1} << 60;  // products with 8 stay inside u64

template <class T>
void store_number(std::array<std::byte, kShardHeaderBytes>& header, size_t offset, T value) {
  std::memcpy(header.data() + offset, &value, sizeof(T));
}

struct Sum {  // a running XXH3-64
  XXH3_state_t* state = XXH3_createState();
  Sum() { XXH3_64bits_reset(state); }
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;
  ~Sum() { XXH3_freeState(state); }
  void add(Bytes part) { XXH3_64bits_update(state, part.data(), part.size()); }
  uint64_t value() const { return XXH3_64bits_digest(state); }
};

// Calls f with [begin, end) of the file in pieces of whole numbers.
template <class F>
void for_pieces(const ReadShard& read, uint64_t begin, uint64_t end, const F& f) {
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  for (; begin < end; begin += kPiece) f(read(begin, std::min(kPiece, end - begin)));
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

ShardHeader parse_shard_header(Bytes head, uint64_t file_bytes, const std::string& name) {
  const Bytes magic = head.first(std::min(head.size(), kMagic.size()));
  if (!magic.empty() && std::memcmp(magic.data(), kMagic.data(), magic.size()) != 0)
    fail("{}: is not a .tok shard (it does not begin with {})", name, kMagic);
  head = take_bytes(head, 0, kShardHeaderBytes, name, "the shard header");
  const uint32_t version = load_number<uint32_t>(head, 8), code = load_number<uint32_t>(head, 12);
  if (version != kVersion) fail("{}: shard version {} is not known (only {} is)", name, version, kVersion);
  if (code != static_cast<uint32_t>(IdType::kU16) && code != static_cast<uint32_t>(IdType::kU32))
    fail("{}: shard dtype {} is not known (1 = u16, 2 = u32)", name, code);
  for (size_t i = kUsedBytes; i < kShardHeaderBytes; ++i)
    if (head[i] != std::byte{0}) fail("{}: the shard header is damaged at offset {}", name, i);
  ShardHeader h;
  h.type = static_cast<IdType>(code);
  h.tokens = load_number<uint64_t>(head, 16), h.documents = load_number<uint64_t>(head, 24);
  if (h.tokens > kMostTokens || h.documents > kMostTokens)
    fail("{}: the shard header is damaged: {} tokens, {} documents", name, h.tokens, h.documents);
  std::memcpy(h.tokenizer.data(), head.data() + 32, h.tokenizer.size());
  h.ids_sum = load_number<uint64_t>(head, 48), h.ends_sum = load_number<uint64_t>(head, 56);
  const uint64_t expected = h.file_bytes();
  if (file_bytes < expected)
    fail("{}: truncated: {} bytes expected, {} found, {} missing", name, expected, file_bytes, expected - file_bytes);
  if (file_bytes > expected) fail("{}: {} bytes lie behind the shard's end", name, file_bytes - expected);
  return h;
}

void ShardHeader::require_tokenizer(const TokenizerHash& hash, const std::string& name) const {
  if (hash != tokenizer)
    fail("{}: was made by the tokenizer {}, not by {}; build the data again with this tokenizer", name, hex(tokenizer),
         hex(hash));
}

void verify_shard(const ShardHeader& h, const std::string& name, const ReadShard& read) {
  const auto check = [&](const Sum& sum, uint64_t expected, const char* what) {
    if (const uint64_t found = sum.value(); found != expected)
      fail("{}: damaged: the {} have the sum {:016x}, the header says {:016x}", name, what, found, expected);
  };
  Sum ids, ends;
  for_pieces(read, kShardHeaderBytes, h.ends_at(), [&](Bytes part) { ids.add(part); });
  check(ids, h.ids_sum, "tokens");
  uint64_t before = 0, document = 0, wrong = h.documents, wrong_end = 0;
  for_pieces(read, h.ends_at(), h.file_bytes(), [&](Bytes part) {
    ends.add(part);
    for (size_t at = 0; at < part.size(); at += 8, ++document) {
      const uint64_t end = load_number<uint64_t>(part, at);
      if ((end < before || end > h.tokens) && wrong == h.documents) wrong = document, wrong_end = end;
      before = end;
    }
  });
  check(ends, h.ends_sum, "document ends");
  if (wrong == h.documents) return;
  if (wrong_end > h.tokens)
    fail("{}: damaged: document {} ends at {}, behind the {} tokens", name, wrong, wrong_end, h.tokens);
  fail("{}: damaged: document {} ends at {}, before the one in front of it", name, wrong, wrong_end);
}

void Shard::read(Bytes bytes) {
  header_ = parse_shard_header(bytes.first(std::min(bytes.size(), kShardHeaderBytes)), bytes.size(), name_);
  bytes_ = bytes;
  ids_ = {header_.type, bytes.subspan(kShardHeaderBytes, header_.id_bytes())};
  ends_ = bytes.subspan(header_.ends_at());
}

int64_t Shard::document_end(int64_t document) const {
  TALLY_ASSERT(document >= 0 && document < documents());
  const uint64_t end = load_number<uint64_t>(ends_, static_cast<size_t>(document) * 8);
  if (end > static_cast<uint64_t>(tokens()))
    fail("{}: damaged: document {} ends at {}, behind the {} tokens", name_, document, end, tokens());
  return static_cast<int64_t>(end);
}

void Shard::verify() const {
  verify_shard(header_, name_, [&](uint64_t offset, uint64_t n) { return bytes_.subspan(offset, n); });
}

struct ShardWriter::Sums : Sum {};

ShardWriter::ShardWriter(const fs::path& path, int64_t vocab_size, const TokenizerHash& hash)
    : file_(path),
      name_(path.string()),
      vocab_size_(vocab_size),
      type_(vocab_size <= 65536 ? IdType::kU16 : IdType::kU32),
      hash_(hash),
      sums_(std::make_unique<Sums>()) {
  if (vocab_size < 1 || vocab_size > INT32_MAX)
    fail("{}: a vocabulary of {} entries is not possible", name_, vocab_size);
  const std::array<std::byte, kShardHeaderBytes> zeros{};
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
    sums_->add(buffer_);
    file_.write(buffer_.data(), buffer_.size());
  }
  tokens_ += ids.size();
}

void ShardWriter::end_document() { ends_.push_back(tokens_); }

void ShardWriter::commit() {
  const size_t end_bytes = ends_.size() * 8;
  if (end_bytes > 0) file_.write(ends_.data(), end_bytes);
  std::array<std::byte, kShardHeaderBytes> header{};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  store_number(header, 8, kVersion);
  store_number(header, 12, static_cast<uint32_t>(type_));
  store_number(header, 16, tokens_);
  store_number(header, 24, uint64_t{ends_.size()});
  std::memcpy(header.data() + 32, hash_.data(), hash_.size());
  store_number(header, 48, sums_->value());
  store_number(header, 56, uint64_t{XXH3_64bits(ends_.data(), end_bytes)});
  file_.write_at(0, header.data(), header.size());
  file_.commit();
}

}  // namespace tally
