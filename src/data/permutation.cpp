#include "lamina/data/permutation.h"

#include <bit>

namespace lamina::data {

int64_t permuted(int64_t index, int64_t size, const RandomKey& key) {
  const auto half = static_cast<unsigned>((std::bit_width(static_cast<uint64_t>(size - 1)) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto place = static_cast<uint64_t>(index);
  do {
    uint64_t left = place >> half;
    uint64_t right = place & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const auto words = philox(key, (round << 62U) ^ right);
      const uint64_t mixed = left ^ ((words[0] | uint64_t{words[1]} << 32U) & mask);
      left = right;
      right = mixed;
    }
    place = left << half | right;
  } while (place >= static_cast<uint64_t>(size));
  return static_cast<int64_t>(place);
}

int64_t drawn_below(int64_t size, const RandomKey& key, uint64_t counter) {
  const auto words = philox(key, counter);
  const uint64_t bits = words[0] | uint64_t{words[1]} << 32U;
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>((Wide{bits} * static_cast<uint64_t>(size)) >> 64U);
}

}  // namespace lamina::data
