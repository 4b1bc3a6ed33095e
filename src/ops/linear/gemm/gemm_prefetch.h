#pragma once

#include <cstdint>

namespace lamina::ops {

/// Number of elements in a cache line.
template <class T>
inline constexpr int64_t kCacheLine = 64 / static_cast<int64_t>(sizeof(T));

inline constexpr int64_t kFetchAhead = 128;  // prefetch distance per row, in elements: packing is memory-bound

}  // namespace lamina::ops
