// Byte-pair encoding of one pre-token: of the adjacent pairs that have a merge the one with the lowest rank is merged,
// the leftmost first, until none is left (Sennrich et al. 2016, "Neural machine translation of rare words with subword
// units"; the order of huggingface/tokenizers and tiktoken). Merges are keyed by the pair of ids, so a vocabulary in
// which a token can arise in two ways, or a merge stands before those that make its parts, is encoded as it says.
//
// Short pieces scan for the lowest rank, O(n m); pieces over kScanBytes use a heap over a linked list, O(n log n), and
// very long ones lists of positions by rank, O(n), when every merge stands behind those that make its parts.
// A piece of up to 16 bytes is looked up among the tokens that the merges do make, then in a cache of the scratch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tally/text/pair_map.h"
#include "tally/text/vocab.h"

namespace tally {

struct BpeMerge {
  int32_t left, right, result;  // token ids
};

// Bytes of a piece of 1 to 16 bytes as two words; with the length they determine the piece.
struct PieceKey {
  uint64_t low, high;
  bool operator==(const PieceKey&) const = default;
};
inline constexpr size_t kKeyBytes = 16;

// Working memory of one thread: grown as needed, given back to the model's pool after use.
struct BpeScratch {
  struct CachedPiece {
    PieceKey key{0, 0};
    uint16_t length = 0;  // 0: empty slot
    uint16_t count = 0;
    std::array<int32_t, 7> ids{};
  };
  std::vector<CachedPiece> cache;
  // Long pieces: a doubly linked list of symbols with the rank of each with its next, and the positions to merge as a
  // heap of (rank, position) or as a list a rank.
  std::vector<int32_t> ids;
  std::vector<uint32_t> next, previous, rank;
  std::vector<uint64_t> heap;
  std::vector<std::vector<uint32_t>> positions;
  std::vector<uint32_t> ranks;  // heap of the ranks that have positions

  size_t bytes() const;  // of the long-piece part
};

class BpeModel {
 public:
  // `merges` by rank. Ids must be in the table; pairs must differ (the caller checks both, with the file's line).
  // A byte that two tokens are becomes the one that is not among `specials`.
  BpeModel(const TokenTable& tokens, std::vector<BpeMerge> merges, std::span<const int32_t> specials = {});

  // Appends the ids of a non-empty piece. Error when a byte has no token of its own, or at 4 GiB and more.
  void encode_piece(std::string_view piece, std::vector<int32_t>& out, BpeScratch& scratch) const;
  // GPT-2's pre-tokens of the text, one after the other.
  void encode_text(std::string_view text, std::vector<int32_t>& out, BpeScratch& scratch) const;

  const std::vector<BpeMerge>& merges() const { return merges_; }

 private:
  struct Merged {
    uint32_t rank;
    int32_t id;
  };
  struct Word {
    PieceKey key{0, 0};
    uint32_t length = 0;  // 0: empty slot
    int32_t id = -1;
  };
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  Merged merge_of(int32_t left, int32_t right) const;
  Merged merge_of_bytes(char left, char right) const;
  int32_t id_of_byte(char byte) const;
  void merge_by_scan(std::string_view piece, std::vector<int32_t>& out) const;
  void link_symbols(std::string_view piece, BpeScratch& scratch) const;
  uint32_t merge_at(uint32_t at, uint32_t rank, BpeScratch& scratch) const;
  uint32_t rate(uint32_t at, BpeScratch& scratch) const;
  void merge_by_heap(std::string_view piece, BpeScratch& scratch) const;
  void merge_by_rank(std::string_view piece, BpeScratch& scratch) const;
  void encode_uncached(std::string_view piece, std::vector<int32_t>& out, BpeScratch& scratch) const;
  void index_words(const TokenTable& tokens);
  const Word* find_word(const PieceKey& key, size_t length, uint64_t hash) const;

  std::vector<BpeMerge> merges_;
  std::array<int32_t, 256> byte_ids_;
  PairMap<Merged> ranks_;
  std::vector<Merged> byte_pairs_;  // merges of two bytes, by left * 256 + right
  std::vector<Word> words_;         // open addressing
  bool in_order_ = true;            // every merge stands behind those that make its parts
};

// Scratch objects that threads borrow; the model itself stays constant.
class BpeScratchPool {
 public:
  std::unique_ptr<BpeScratch> take();
  void give(std::unique_ptr<BpeScratch> scratch);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BpeScratch>> free_;
};

}  // namespace tally
