#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// The result of merging a pair of neighbors.
struct Merge {
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  int32_t rank = kNever;
  TokenId result = 0;
};

/// A flat hash table from pairs of ids to merges. A lookup mostly costs a single probe.
class MergeTable {
 public:
  explicit MergeTable(const std::vector<MergeRule>& rules);

  bool empty() const { return empty_; }
  Merge find(TokenId left, TokenId right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = place_of(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return slot.merge;
      if (slot.key == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t place_of(uint64_t key) const {
    key ^= key >> 32;  // mixes both halves into the upper bits of the product
    return (key * 0x9E3779B97F4A7C15U) >> shift_;
  }

  std::vector<Slot> slots_;
  size_t mask_;
  int shift_;
  bool empty_;
};

}  // namespace lamina::text
