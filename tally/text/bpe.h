// Byte-pair encoding of pre-tokens in linear time, exactly as merging pair by pair gives it (bpe_merge.h).
//
// A sequence of tokens is the encoding of its bytes if and only if each token is that of its own bytes and nothing
// merges across any two neighbours when the two are encoded together: merges in one place only delay those in another,
// so the first merge across a border would also be one for the two beside it alone. Whatever the order of merges and
// however many ways there are to make a token, at most one token can therefore end the encoding of each prefix; so:
// take the longest token that stands apart from the one before it; where none does, go back one token and never come to
// this place again (github.com/github/rust-gems, crate bpe; there for one way to make each token). Whether two tokens
// stand apart is found by undoing their last merges in turn, newest first, and remembered a thread.
//
// Short pieces are looked up before: in a cache a thread of pieces with up to three tokens, then among the whole
// tokens; the rest of them is merged pair by pair. Pieces are collected a batch at a time, so that the look-ups of a
// batch are loaded together (bpe_text.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tally/text/bpe_merge.h"
#include "tally/text/bpe_trie.h"
#include "tally/text/pair_set.h"
#include "tally/text/piece_key.h"
#include "tally/text/vocab.h"

namespace tally {

struct BpeRules {
  // A piece that is a token as a whole becomes it, whether or not the merges make it (tokenizer.json: ignore_merges).
  bool ignore_merges = false;
  // Two tokens merge when their bytes together are a token, the lowest id first, and ignore_merges (tiktoken). The list
  // of merges is then empty.
  bool merge_by_id = false;
};

// Working memory of one thread: grown as needed, given back to the model's pool after use. Its caches grow
// fourfold each time as many pieces were not in them as they hold, so that little text takes little memory.
struct BpeScratch {
  static constexpr int kLeastBits = 12, kMostBits = 19;
  // The caches have at most 2^most_bits places, of 56 bytes each.
  explicit BpeScratch(int most_bits = kMostBits) : most_bits(most_bits) {}
  struct CachedPiece {
    PieceKey key;  // marked: the piece has more tokens, which are in `long_cache`
    std::array<int32_t, 3> ids{};
    uint32_t count = 0;
  };
  static_assert(sizeof(CachedPiece) == 32);
  struct LongPiece {  // more bytes or more tokens
    std::array<char, 32> bytes{};
    uint16_t length = 0, count = 0;  // length 0: empty
    std::array<int32_t, 7> ids{};
  };
  static_assert(sizeof(LongPiece) == 64);
  int most_bits, bits = 0;           // of the places in `cache`; bits 0: none yet
  size_t misses = 0;                 // since the caches grew
  HugeVector<CachedPiece> cache;     // 2^bits
  HugeVector<LongPiece> long_cache;  // a quarter of that
  HugeVector<uint64_t> apart;        // 2^bits: pair of tokens and the answer
  std::vector<uint64_t> dead;        // places of a long piece where no encoding can go on, one bit each
  std::vector<int32_t> ids, found;   // of a long piece; of the pieces so far

  void make_room();
  static uint64_t long_hash(std::string_view piece);  // of a piece of up to 32 bytes: its place in long_cache
  size_t bytes() const { return ids.capacity() * 4 + dead.capacity() * 8; }  // what a long piece made it grow by
};

class BpeModel {
 public:
  // Ids must be in the table; pairs must differ (the caller checks both, with the file's line). Tokens without bytes
  // are ids that are left out. A byte that two tokens are becomes the one that is not among `specials`.
  BpeModel(const TokenTable& tokens, std::vector<BpeMerge> merges, std::span<const int32_t> specials = {},
           BpeRules rules = {});

  // Appends the ids of a non-empty piece. Error when a byte has no token of its own.
  void encode_piece(std::string_view piece, std::vector<int32_t>& out, BpeScratch& scratch) const;
  void encode_piece(std::string_view piece, std::vector<int32_t>& out, const BpeDropout& dropout) const;

  // By rank; with merge_by_id all pairs that merge, by result.
  const std::vector<BpeMerge>& merges() const { return merges_; }
  const BpeRules& rules() const { return rules_; }
  // Whether the merges make the token of its bytes.
  bool reachable(int32_t id) const { return made_[static_cast<size_t>(id)] != kNever; }

 private:
  friend class BpeTextEncoder;
  struct Parts {
    int32_t left, right;  // of the last merge that makes the token
    uint32_t made;        // its rank + 1; 0: a byte
    // A bit for every token that this one is the left part of a token with, by a hash: most have few or none, and the
    // answer for them is in memory that is read anyway.
    uint32_t followers = 0;
  };
  static uint32_t follower_bit(int32_t right) { return 1u << (static_cast<uint32_t>(right) * 0x9E3779B1u >> 27); }
  PairSet::Found joins(int32_t left, int32_t right) const {  // what two parts of a token make
    const bool maybe = (parts_[static_cast<size_t>(left)].followers & follower_bit(right)) != 0;
    return maybe ? joined_.find(left, right) : PairSet::Found{};
  }
  struct Shorter {
    int32_t token;    // the longest token that is a proper prefix, or -1
    uint32_t length;  // of this one
  };
  static constexpr uint32_t kNever = ~uint32_t{0};

  void choose_bytes(const TokenTable& tokens, std::span<const int32_t> specials);
  void merge_all_pairs(const TokenTable& tokens, std::span<const int32_t> specials);
  void find_parts(const TokenTable& tokens);
  void set_parts(int32_t token, int32_t left, int32_t right, uint32_t rank);
  void index(const TokenTable& tokens, std::span<const int32_t> specials);

  int32_t id_of_byte(char byte) const;
  // Undoes the merges of both tokens in turn, the newest first (of equal ones the right token's, which came later). At
  // each stage the two symbols at the border would have merged if their merge came before what replaced either of them;
  // it comes before an equal one of the right token only. made(left, right): the rank + 1 of the pair's merge, or 0. It
  // is enough to know the pairs that tokens are last merged from: any other that has a merge does not come to stand
  // side by side, for something merges across it before.
  template <class Made>
  bool apart_before(int32_t left, int32_t right, const Made& made) const {
    uint32_t left_until = ~uint32_t{0}, right_until = ~uint32_t{0};
    for (;;) {
      const Parts l = parts_[static_cast<size_t>(left)], r = parts_[static_cast<size_t>(right)];
      if (l.made > r.made) {
        left_until = l.made;
        left = l.right;
      } else if (r.made > 0) {
        right_until = r.made;
        right = r.left;
      } else {
        return true;
      }
      const uint32_t m = made(left, right);
      if (m != 0 && m < left_until && m <= right_until) return false;
    }
  }
  bool parts_apart(int32_t left, int32_t right) const;
  bool merged_apart(int32_t left, int32_t right) const;
  bool apart(int32_t left, int32_t right, BpeScratch& scratch) const;
  size_t backtrack(std::string_view piece, int32_t* ids, uint64_t* dead, BpeScratch& scratch) const;
  size_t merge_short(std::string_view piece, int32_t* ids) const;
  static size_t byte_pair(char a, char b) {
    return size_t{static_cast<unsigned char>(a)} << 8 | static_cast<unsigned char>(b);
  }
  // The ids of any piece, in scratch memory or in `small`.
  std::span<const int32_t> encode_anew(std::string_view piece, std::array<int32_t, 64>& small,
                                       BpeScratch& scratch) const;
  int32_t whole_long_piece(std::string_view piece) const;

  BpeRules rules_;
  std::vector<BpeMerge> merges_;
  MergeTable table_;
  PairSet joined_;                          // parts of tokens
  std::vector<PairSet::Found> byte_pairs_;  // the same of two bytes: 2^16
  std::array<int32_t, 256> byte_ids_;
  bool all_bytes_ = true;
  HugeVector<Parts> parts_;
  std::vector<uint32_t> made_;  // as in Parts; kNever: not reachable
  std::vector<bool> odd_;       // made otherwise than by merges of rising rank
  bool any_odd_ = false;
  HugeVector<Shorter> shorter_;
  ByteTrie trie_;                                        // of what is reachable
  WordMap words_;                                        // whole pieces of up to kKeyBytes
  std::unordered_map<std::string, int32_t> long_words_;  // longer ones that the merges do not make (ignore_merges)
};

// Scratch objects that threads borrow; the model itself stays constant.
class BpeScratchPool {
 public:
  explicit BpeScratchPool(int most_bits = BpeScratch::kMostBits) : most_bits_(most_bits) {}
  std::unique_ptr<BpeScratch> take();
  void give(std::unique_ptr<BpeScratch> scratch);

 private:
  int most_bits_;  // of each
  std::mutex mutex_;
  std::vector<std::unique_ptr<BpeScratch>> free_;
};

}  // namespace tally
