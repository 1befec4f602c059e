// `.tok` shards: token ids with the ends of the documents, mapped read-only.
//
//   offset 0   char[8]  "TALLYTOK"
//          8   u32      version (1)
//         12   u32      dtype: 1 = u16 (vocabulary up to 65536), 2 = u32
//         16   u64      tokens
//         24   u64      documents
//         32   u8[16]   hash of the tokenizer
//         48   u64      XXH3-64 of the token bytes
//         56   u64      XXH3-64 of the bytes of the document ends
//         64   zeros up to 256
//        256   tokens, then u64 document ends (position behind the last token of each, ascending)
//
// A document may go on in the next shard: then its end is there, and the last end here is below `tokens`.
// All numbers are little-endian. parse() is a pure function of bytes and a name.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tally/base/file.h"
#include "tally/io/ids.h"

namespace tally {

using TokenizerHash = std::array<uint8_t, 16>;
std::string hex(const TokenizerHash& hash);  // 32 lower-case digits
// From 32 hexadecimal digits; throws Error naming `where` for anything else.
TokenizerHash tokenizer_hash_from_hex(std::string_view digits, const std::string& where);

constexpr size_t kShardHeaderBytes = 256;

struct ShardHeader {
  IdType type = IdType::kU16;
  uint64_t tokens = 0, documents = 0;
  TokenizerHash tokenizer{};
  uint64_t ids_sum = 0, ends_sum = 0;

  uint64_t id_bytes() const { return tokens * static_cast<uint64_t>(tally::id_bytes(type)); }
  uint64_t ends_at() const { return kShardHeaderBytes + id_bytes(); }
  uint64_t file_bytes() const { return ends_at() + documents * 8; }
  // Throws Error naming the file and both hashes when the shard was made by another tokenizer.
  void require_tokenizer(const TokenizerHash& hash, const std::string& name) const;
  bool operator==(const ShardHeader&) const = default;
};

// `head`: the first kShardHeaderBytes of a file of `file_bytes` bytes, or all of a shorter one. Throws Error naming the
// file: not a shard, damaged, truncated, too long.
ShardHeader parse_shard_header(Bytes head, uint64_t file_bytes, const std::string& name);

// `n` bytes of a shard's file from `offset`; valid until the next call.
using ReadShard = std::function<Bytes(uint64_t offset, uint64_t n)>;
// Reads all bytes: both sums, and the ends ascending and inside. Throws Error naming the file and the wrong part.
void verify_shard(const ShardHeader& header, const std::string& name, const ReadShard& read);

class Shard {
 public:
  Shard() = default;
  // Maps the file and checks the header and the file's size; the sums only in verify().
  explicit Shard(const fs::path& path);
  static Shard parse(Bytes bytes, const std::string& name);

  const std::string& file() const { return name_; }
  const IdSpan& ids() const { return ids_; }
  int64_t tokens() const { return ids_.size(); }
  int64_t documents() const { return static_cast<int64_t>(ends_.size() / 8); }
  int64_t document_end(int64_t document) const;  // position behind its last token
  const TokenizerHash& tokenizer_hash() const { return header_.tokenizer; }

  void verify() const;  // verify_shard()
  void require_tokenizer(const TokenizerHash& hash) const { header_.require_tokenizer(hash, name_); }

 private:
  void read(Bytes bytes);
  MappedFile mapped_;
  std::string name_;
  ShardHeader header_;
  Bytes bytes_;
  IdSpan ids_;
  Bytes ends_;
};

// Writes one shard as the tokens come; nothing appears under `path` before commit(). Memory: 8 bytes a document.
class ShardWriter {
 public:
  ShardWriter(const fs::path& path, int64_t vocab_size, const TokenizerHash& hash);
  ~ShardWriter();

  // Throws Error naming the file and the id when it is not in [0, vocab_size).
  void add(std::span<const int32_t> ids);
  void end_document();
  void commit();
  int64_t tokens() const { return static_cast<int64_t>(tokens_); }
  int64_t documents() const { return static_cast<int64_t>(ends_.size()); }

 private:
  struct Sums;  // the running XXH3 state
  AtomicFile file_;
  std::string name_;
  int64_t vocab_size_;
  IdType type_;
  TokenizerHash hash_;
  uint64_t tokens_ = 0;
  std::vector<uint64_t> ends_;
  std::vector<std::byte> buffer_;
  std::unique_ptr<Sums> sums_;
};

}  // namespace tally
