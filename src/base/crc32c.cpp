#include "lamina/base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace lamina {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read in the byte order of the checksum");

// Slicing-by-8 (Kounavis & Berry 2005): kTables[k][b] is the remainder of byte b followed by k zero bytes.
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

uint64_t load_word(const unsigned char* from) {
  uint64_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

uint32_t add_bytes(const unsigned char* next, size_t size, uint32_t rest) {
  for (; size > 0; --size, ++next) rest = (rest >> 8U) ^ kTables[0][(rest ^ *next) & 255U];
  return rest;
}

uint32_t by_tables(const unsigned char* next, size_t size, uint32_t rest) {
  for (; size >= 8; size -= 8, next += 8) {
    const uint64_t word = load_word(next) ^ rest;
    rest = 0;
    for (size_t k = 0; k < 8; ++k) rest ^= kTables[7 - k][(word >> (8 * k)) & 255U];
  }
  return add_bytes(next, size, rest);
}

#if defined(__x86_64__)
constexpr size_t kLane = 8192;

/// Appends kLane zero bytes to a remainder. This is linear over bits, so four tables (one per byte) suffice.
class LaneShift {
 public:
  LaneShift() {
    for (size_t byte = 0; byte < 4; ++byte) {
      for (uint32_t value = 0; value < 256; ++value) {
        uint32_t rest = value << (8 * byte);
        if (std::has_single_bit(value)) {
          for (size_t i = 0; i < kLane; ++i) rest = (rest >> 8U) ^ kTables[0][rest & 255U];
          tables_[byte][value] = rest;
        } else if (value != 0) {
          const uint32_t low = value & (~value + 1);
          tables_[byte][value] = tables_[byte][low] ^ tables_[byte][value ^ low];
        }
      }
    }
  }
  uint32_t operator()(uint32_t rest) const {
    return tables_[0][rest & 255U] ^ tables_[1][(rest >> 8U) & 255U] ^ tables_[2][(rest >> 16U) & 255U] ^
           tables_[3][rest >> 24U];
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> tables_{};
};

/// CRC with the crc32 instruction. It has a latency of three cycles but can start every cycle, so three lanes run
/// interleaved.
__attribute__((target("sse4.2"))) uint32_t by_instruction(const unsigned char* next, size_t size, uint32_t rest) {
  static const LaneShift shift;
  for (; size >= 3 * kLane; size -= 3 * kLane, next += 3 * kLane) {
    uint64_t a = rest;
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kLane; i += 8) {
      a = _mm_crc32_u64(a, load_word(next + i));
      b = _mm_crc32_u64(b, load_word(next + kLane + i));
      c = _mm_crc32_u64(c, load_word(next + 2 * kLane + i));
    }
    rest = shift(shift(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b)) ^ static_cast<uint32_t>(c);
  }
  for (; size >= 8; size -= 8, next += 8) rest = static_cast<uint32_t>(_mm_crc32_u64(rest, load_word(next)));
  return add_bytes(next, size, rest);
}
#endif

}  // namespace

uint32_t crc32c(const void* bytes, size_t size, uint32_t before) {
  const auto* first = static_cast<const unsigned char*>(bytes);
#if defined(__x86_64__)
  static const bool instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (instruction) return ~by_instruction(first, size, ~before);
#endif
  return ~by_tables(first, size, ~before);
}

}  // namespace lamina
