#pragma once

#include <cstdint>

#include "lamina/base/philox.h"

namespace lamina::data {

/// Where element `index` of 0 … size − 1 goes in the permutation that `key` names, without a table: a Feistel network
/// of four rounds over the next even power of two, walked until it lands inside (Black & Rogaway 2002).
int64_t permuted(int64_t index, int64_t size, const RandomKey& key);

/// Uniform in 0 … size − 1, the number `counter` of the stream: the high half of size × 64 random bits (Lemire 2019;
/// its bias is below size / 2⁶⁴).
int64_t drawn_below(int64_t size, const RandomKey& key, uint64_t counter);

}  // namespace lamina::data
