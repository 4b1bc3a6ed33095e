#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// Hash table from short byte strings to ids: one probe into a flat table of (hash, id), then a comparison.
class Vocabulary {
 public:
  static constexpr TokenId kNone = -1;

  /// Reserves space for `entries` entries. More must not be added.
  explicit Vocabulary(size_t entries = 0);

  /// Returns false, and changes nothing, if the bytes are already there.
  bool add(std::string_view bytes, TokenId id);
  TokenId find(std::string_view bytes) const {
    const uint64_t hash = hash_of(bytes);
    for (size_t at = hash >> shift_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.id == kNone) return kNone;
      if (slot.hash == static_cast<uint32_t>(hash) && slot.length == bytes.size() &&
          std::string_view(arena_.data() + slot.begin, slot.length) == bytes) {
        return slot.id;
      }
    }
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    TokenId id = kNone;
    uint32_t begin = 0;
    uint32_t length = 0;
  };
  static uint64_t hash_of(std::string_view bytes);

  std::vector<Slot> slots_;
  std::string arena_;
  size_t mask_;
  int shift_;
};

}  // namespace lamina::text
