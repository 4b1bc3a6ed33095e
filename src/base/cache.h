#pragma once

#include <cstdint>

namespace lamina {

/// Size in bytes of the last-level cache as the system reports it; 32 MiB if it reports none.
int64_t last_level_cache_bytes();

/// Whether to write an output of this size with streaming stores. Such an output, together with inputs of about its
/// size, is evicted before it is read again. Bypassing the caches saves the read of each line before the write.
inline bool exceeds_last_level_cache(int64_t bytes) { return 2 * bytes > last_level_cache_bytes(); }

}  // namespace lamina
