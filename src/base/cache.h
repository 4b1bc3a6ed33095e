#pragma once

#include <cstdint>

namespace lamina {

/// Bytes of the last cache before memory, as the system tells; 32 MiB where it does not.
int64_t last_level_cache_bytes();

/// An output of so many bytes, written beside inputs of about its size, has left the caches before anyone reads it:
/// storing it past them saves fetching every line first.
inline bool exceeds_last_level_cache(int64_t bytes) { return 2 * bytes > last_level_cache_bytes(); }

}  // namespace lamina
