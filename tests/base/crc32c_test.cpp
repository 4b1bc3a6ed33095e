#include "lamina/base/crc32c.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace lamina {
namespace {

/// Bit by bit, from the polynomial.
uint32_t by_bits(const std::string& bytes) {
  uint32_t rest = ~0U;
  for (const char byte : bytes) {
    rest ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1U) ^ ((rest & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return ~rest;
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(nullptr, 0), 0U);
}

TEST(Crc32c, EveryLengthAndPiecesGiveTheSame) {
  std::string bytes;
  uint32_t state = 1;
  for (int i = 0; i < 100'000; ++i) bytes.push_back(static_cast<char>((state = state * 1664525 + 1013904223) >> 24U));
  for (const size_t size : {1, 7, 8, 9, 1000, 24'575, 24'576, 24'577, 49'159, 100'000}) {
    const uint32_t expected = by_bits(bytes.substr(0, size));
    EXPECT_EQ(crc32c(bytes.data(), size), expected) << size;
    EXPECT_EQ(crc32c(bytes.data() + size / 3, size - size / 3, crc32c(bytes.data(), size / 3)), expected) << size;
  }
}

}  // namespace
}  // namespace lamina
