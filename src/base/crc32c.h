#pragma once

#include <cstddef>
#include <cstdint>

namespace lamina {

/// CRC-32C (Castagnoli), as TFRecord, iSCSI and ext4 use it. `before` is the checksum of the bytes in front of these,
/// so that a long text may be summed in pieces.
uint32_t crc32c(const void* bytes, size_t size, uint32_t before = 0);

}  // namespace lamina
