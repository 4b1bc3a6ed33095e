#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// A trie over bytes, for vocabularies that need all entries with a common prefix. The children of all nodes share one
/// flat hash table; a step mostly costs a single probe.
class ByteTrie {
 public:
  using Node = int32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = -1;
  static constexpr TokenId kNoToken = -1;

  ByteTrie();

  /// Adds a non-empty entry. If the bytes are already there, the first id stays.
  void add(std::string_view bytes, TokenId id);

  /// The child of `node` for this byte, or kNone.
  Node child(Node node, unsigned char byte) const {
    const uint64_t key = key_of(node, byte);
    for (size_t at = place_of(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return slot.child;
      if (slot.key == kFree) return kNone;
    }
  }
  /// The node with these bytes, or kNone.
  Node descend(std::string_view bytes, Node from = kRoot) const {
    for (size_t i = 0; i < bytes.size() && from != kNone; ++i) from = child(from, static_cast<unsigned char>(bytes[i]));
    return from;
  }
  /// The entry that ends at `node`, or kNoToken.
  TokenId token(Node node) const { return tokens_[static_cast<size_t>(node)]; }
  /// The entry with exactly these bytes, or kNoToken.
  TokenId find(std::string_view bytes) const {
    const Node node = descend(bytes);
    return node == kNone ? kNoToken : token(node);
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Node child = kNone;
  };
  static uint64_t key_of(Node node, unsigned char byte) {
    return static_cast<uint64_t>(static_cast<uint32_t>(node)) << 8 | byte;
  }
  size_t place_of(uint64_t key) const { return (key * 0x9E3779B97F4A7C15U) >> shift_; }
  void insert(uint64_t key, Node child);
  void grow();

  std::vector<Slot> slots_;
  std::vector<TokenId> tokens_;  // the entry that ends at a node, or kNoToken
  size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace lamina::text
