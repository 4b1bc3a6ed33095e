#include "lamina/text/byte_trie.h"

#include <bit>
#include <utility>

namespace lamina::text {

ByteTrie::ByteTrie()
    : slots_(256), tokens_(1, kNoToken), mask_(slots_.size() - 1), shift_(64 - std::countr_zero(slots_.size())) {}

void ByteTrie::insert(uint64_t key, Node child) {
  size_t at = place_of(key);
  while (slots_[at].key != kFree) at = (at + 1) & mask_;
  slots_[at] = {key, child};
}

void ByteTrie::grow() {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
  mask_ = slots_.size() - 1;
  --shift_;
  for (const Slot& slot : old) {
    if (slot.key != kFree) insert(slot.key, slot.child);
  }
}

void ByteTrie::add(std::string_view bytes, TokenId id) {
  Node node = kRoot;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    Node next = child(node, byte);
    if (next == kNone) {
      next = static_cast<Node>(tokens_.size());
      tokens_.push_back(kNoToken);
      if (tokens_.size() * 2 > slots_.size()) grow();
      insert(key_of(node, byte), next);
    }
    node = next;
  }
  TokenId& token = tokens_[static_cast<size_t>(node)];
  if (token == kNoToken) token = id;
}

}  // namespace lamina::text
