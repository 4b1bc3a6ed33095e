#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace lamina::data {

static_assert(std::endian::native == std::endian::little, "token files are read and written as they lie in memory");

/// Header of Lamina's token files. All numbers are little-endian. After it come token_count ids of token_width bytes,
/// zeros up to a multiple of 8 bytes, and document_count starts of documents (u64, in tokens, ascending from 0).
struct TokenHeader {
  char magic[8];
  uint32_t version;
  uint32_t token_width;  ///< 2 or 4
  uint64_t vocab_size;
  uint64_t token_count;
  uint64_t document_count;
  uint64_t tokenizer_hash;   ///< 0: unknown
  uint64_t reserved;         ///< 0
  uint32_t body_checksum;    ///< CRC-32C of everything after the header
  uint32_t header_checksum;  ///< CRC-32C of the preceding 60 bytes
};
static_assert(sizeof(TokenHeader) == 64);

inline constexpr char kTokenMagic[] = "LAMINATK";
inline constexpr uint32_t kTokenVersion = 1;
inline constexpr size_t kCheckedHeaderBytes = offsetof(TokenHeader, header_checksum);

}  // namespace lamina::data
