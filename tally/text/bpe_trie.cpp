// Placing the nodes; see bpe_trie.h. Nodes with one child take the next free place, the others the first base that fits
// among the youngest blocks of 256.
#include "tally/text/bpe_trie.h"

#include <algorithm>
#include <bit>

#include "tally/base/error.h"

namespace tally {

struct ByteTrie::Builder {
  static constexpr size_t kBlock = 256, kOpenBlocks = 16;
  using Bits = std::array<uint64_t, 4>;  // one a place of a block
  struct Block {
    Bits free{~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}}, bases = free;  // not taken as a place, as a base
    size_t left = kBlock;
  };

  std::vector<Entry> entries;  // ascending by bytes
  HugeVector<uint64_t>& nodes;
  std::vector<Block> blocks;
  size_t first_open = 0;  // blocks before it are as good as full

  explicit Builder(std::vector<Entry> all, HugeVector<uint64_t>& out) : entries(std::move(all)), nodes(out) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.bytes < b.bytes; });
    add_block();
    blocks[0].bases[0] &= ~uint64_t{1};  // the base of nodes without children
  }

  void add_block() {
    if (nodes.size() + kBlock > kMostNodes)
      fail("the vocabulary has more than {} different beginnings of tokens", kMostNodes);
    nodes.resize(nodes.size() + kBlock, 0);
    blocks.emplace_back();
    while (first_open + kOpenBlocks < blocks.size() || blocks[first_open].left == 0) ++first_open;
  }

  // Bit i of the result is bit i ^ c of `bits`, c < 64.
  static uint64_t exchange(uint64_t bits, unsigned c) {
    constexpr std::array<uint64_t, 6> kLow{0x5555555555555555u, 0x3333333333333333u, 0x0F0F0F0F0F0F0F0Fu,
                                           0x00FF00FF00FF00FFu, 0x0000FFFF0000FFFFu, 0x00000000FFFFFFFFu};
    for (unsigned k = 0; k < 6; ++k)
      if ((c >> k & 1) != 0) bits = ((bits & kLow[k]) << (1u << k)) | ((bits >> (1u << k)) & kLow[k]);
    return bits;
  }

  // A base such that the places of all labels are free.
  size_t place(std::span<const uint8_t> labels) {
    for (;;) {
      for (size_t b = first_open; b < blocks.size(); ++b) {
        Block& block = blocks[b];
        if (block.left < labels.size()) continue;
        for (size_t word = 0; word < 4; ++word) {
          uint64_t fitting = block.bases[word];
          for (const uint8_t c : labels) fitting &= exchange(block.free[word ^ (c >> 6)], c & 63);
          if (fitting == 0) continue;
          const size_t base = word * 64 + static_cast<size_t>(std::countr_zero(fitting));
          block.bases[word] &= ~(uint64_t{1} << (base % 64));
          block.left -= labels.size();
          for (const uint8_t c : labels) {
            block.free[(base ^ c) / 64] &= ~(uint64_t{1} << ((base ^ c) % 64));
            nodes[b * kBlock + (base ^ c)] = kUsed | c;
          }
          return b * kBlock + base;
        }
      }
      add_block();
    }
  }

  // Entries [begin, end) share their first `depth` bytes; `node` is theirs, so far without token and base.
  struct Item {
    size_t begin, end, depth, node;
    bool in_two;  // node is an index of `two`, otherwise of `nodes`
  };

  // Children are placed together, and before their own children. No recursion: tokens may be long.
  void build(Item root, std::vector<uint64_t>& two) {
    std::vector<Item> items{root};
    std::vector<uint8_t> labels;
    std::vector<size_t> starts;
    while (!items.empty()) {
      Item item = items.back();
      items.pop_back();
      uint64_t value = 0;
      if (entries[item.begin].bytes.size() == item.depth)
        value = static_cast<uint64_t>(entries[item.begin++].token + 1) << kTokenShift;
      labels.clear(), starts.clear();
      for (size_t i = item.begin; i < item.end; ++i) {
        const auto c = static_cast<uint8_t>(entries[i].bytes[item.depth]);
        if (labels.empty() || labels.back() != c) labels.push_back(c), starts.push_back(i);
      }
      starts.push_back(item.end);
      if (!labels.empty()) {
        const size_t base = place(labels);
        value |= uint64_t{base} << kBaseShift;
        for (size_t k = labels.size(); k-- > 0;)
          items.push_back({starts[k], starts[k + 1], item.depth + 1, base ^ labels[k], false});
      }
      (item.in_two ? two[item.node] : nodes[item.node]) |= value;
    }
  }
};

ByteTrie::ByteTrie(std::vector<Entry> all) : two_(size_t{1} << 16, 0) {
  one_.fill(-1);
  for (const Entry& e : all) {
    TALLY_ASSERT(!e.bytes.empty());
    if (static_cast<size_t>(e.token) >= kMostTokens) fail("token id {} is larger than {}", e.token, kMostTokens - 1);
    if (e.bytes.size() == 1) one_[static_cast<unsigned char>(e.bytes[0])] = e.token;
  }
  std::erase_if(all, [](const Entry& e) { return e.bytes.size() == 1; });
  Builder builder(std::move(all), nodes_);
  const std::vector<Entry>& entries = builder.entries;
  const auto first_two = [&entries](size_t i) {
    return size_t{static_cast<unsigned char>(entries[i].bytes[0])} << 8 |
           static_cast<unsigned char>(entries[i].bytes[1]);
  };
  for (size_t i = 0, end; i < entries.size(); i = end) {
    for (end = i + 1; end < entries.size() && first_two(end) == first_two(i);) ++end;
    builder.build({i, end, 2, first_two(i), true}, two_);
  }
}

}  // namespace tally
