#pragma once

#include <cstdint>

namespace lamina {

/// Size of the last-level cache in bytes, as the system reports it. 32 MiB if it reports none.
int64_t last_level_cache_bytes();

/// Whether to write an output of this size with streaming stores. Together with inputs of about the same size, such an
/// output would be evicted before it is read again. Bypassing the caches saves reading each line before it is written.
inline bool exceeds_last_level_cache(int64_t bytes) { return 2 * bytes > last_level_cache_bytes(); }

}  // namespace lamina
