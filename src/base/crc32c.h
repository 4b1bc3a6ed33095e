#pragma once

#include <cstddef>
#include <cstdint>

namespace lamina {

/// CRC-32C (Castagnoli), the checksum of TFRecord, iSCSI and ext4. To checksum data in pieces, pass the checksum of the
/// preceding bytes as `before`.
uint32_t crc32c(const void* bytes, size_t size, uint32_t before = 0);

}  // namespace lamina
