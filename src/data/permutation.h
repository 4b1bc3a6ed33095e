#pragma once

#include <cstdint>

#include "lamina/base/philox.h"

namespace lamina::data {

/// Position of element `index` of 0 … size − 1 in the random permutation given by `key`. Computed without a table, by a
/// four-round Feistel network over the next even power of two, with cycle walking (Black & Rogaway 2002).
int64_t permuted(int64_t index, int64_t size, const RandomKey& key);

/// A uniform number in 0 … size − 1, from number `counter` of the random stream. It is the high half of size × 64
/// random bits (Lemire 2019); the bias is below size / 2⁶⁴.
int64_t drawn_below(int64_t size, const RandomKey& key, uint64_t counter);

}  // namespace lamina::data
