#pragma once

#include <array>
#include <cstdint>

namespace lamina {

/// Names one stream of random numbers. Operators that draw take a key as an argument and keep no state, so a segment
/// that is run twice draws the same numbers. Use one stream per place and step.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;
};

/// Philox4x32-10 (Salmon et al. 2011): four words for each counter, the same on every device.
constexpr std::array<uint32_t, 4> philox(const RandomKey& key, uint64_t counter) {
  std::array<uint32_t, 4> x{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                            static_cast<uint32_t>(key.stream), static_cast<uint32_t>(key.stream >> 32)};
  auto k0 = static_cast<uint32_t>(key.seed);
  auto k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53U} * x[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57U} * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return x;
}

/// The word belonging to element `index` of a stream: word index % 4 of counter index / 4.
constexpr uint32_t philox_word(const RandomKey& key, uint64_t index) { return philox(key, index / 4)[index % 4]; }

/// Dropout keeps an element when its word is not below this threshold.
constexpr uint32_t dropout_threshold(double probability) {
  return probability >= 1.0 ? 0xffffffffU : static_cast<uint32_t>(probability * 4294967296.0);
}

}  // namespace lamina
