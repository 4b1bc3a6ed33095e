#include "lamina/text/charsmap.h"

#include <cstdint>
#include <cstring>

#include "lamina/base/error.h"

namespace lamina::text {
namespace {

// Fields of a unit in the double array (as in Darts-clone).
bool unit_has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t unit_value(uint32_t unit) { return unit & 0x7FFFFFFFU; }
uint32_t unit_label(uint32_t unit) { return unit & 0x800000FFU; }
uint32_t unit_offset(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& name) {
  uint32_t size = 0;
  if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  LAMINA_CHECK(bytes.size() > sizeof size && size % 4 == 0 && size >= 4 && size <= bytes.size() - sizeof size, name,
               ": the precompiled_charsmap of ", bytes.size(), " bytes is cut off; expected the size of its trie (",
               size, "), the trie and the normalized forms");
  trie_ = bytes.substr(sizeof size, size);
  forms_ = bytes.substr(sizeof size + size);
}

bool Charsmap::unit_at(size_t index, uint32_t& unit) const {
  if (index >= trie_.size() / sizeof unit) return false;
  std::memcpy(&unit, trie_.data() + index * sizeof unit, sizeof unit);
  return true;
}

std::optional<Charsmap::Match> Charsmap::search(std::string_view text, bool first) const {
  std::optional<Match> best;
  uint32_t unit = 0;
  if (!unit_at(0, unit)) return {};
  size_t node = unit_offset(unit);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || !unit_at(node, unit) || unit_label(unit) != byte) break;
    node ^= unit_offset(unit);
    if (!unit_has_leaf(unit)) continue;
    uint32_t leaf = 0;
    if (!unit_at(node, leaf) || unit_value(leaf) >= forms_.size()) break;
    const std::string_view rest = forms_.substr(unit_value(leaf));
    best = {i + 1, rest.substr(0, rest.find('\0'))};
    if (first) break;
  }
  return best;
}

}  // namespace lamina::text
