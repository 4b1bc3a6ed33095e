#include "lamina/base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace lamina {
namespace {

// Eight bytes at a time: tables[k][b] is the remainder of byte b followed by k zero bytes (Kounavis & Berry 2005).
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1U) ^ ((rest & 1U) != 0 ? 0x82F63B78U : 0U);
    tables[0][byte] = rest;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t rest = tables[k - 1][byte];
      tables[k][byte] = (rest >> 8U) ^ tables[0][rest & 255U];
    }
  }
  return tables;
}();

}  // namespace

uint32_t crc32c(const void* bytes, size_t size, uint32_t before) {
  static_assert(std::endian::native == std::endian::little, "words are taken as they lie");
  const auto* next = static_cast<const unsigned char*>(bytes);
  uint32_t rest = ~before;
  for (; size >= 8; size -= 8, next += 8) {
    uint64_t word = 0;
    std::memcpy(&word, next, 8);
    word ^= rest;
    rest = 0;
    for (size_t k = 0; k < 8; ++k) rest ^= kTables[7 - k][(word >> (8 * k)) & 255U];
  }
  for (; size > 0; --size, ++next) rest = (rest >> 8U) ^ kTables[0][(rest ^ *next) & 255U];
  return ~rest;
}

}  // namespace lamina
