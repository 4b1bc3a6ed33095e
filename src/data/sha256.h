#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lamina::data {

/// Incremental SHA-256 (FIPS 180-4).
class Sha256 {
 public:
  void add(std::string_view bytes);
  /// The hash of everything that was added. Call it only once, at the end.
  std::array<uint8_t, 32> finish();

 private:
  void block(const uint8_t* bytes);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};
  size_t pending_size_ = 0;
  uint64_t size_ = 0;
};

/// The hash as 64 hexadecimal digits, as printed by `sha256sum`.
std::string sha256_hex(std::string_view bytes);
/// The first eight bytes of the hash as a number. Token files identify tokenizers by it.
uint64_t sha256_short(std::string_view bytes);

}  // namespace lamina::data
