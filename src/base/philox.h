#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lamina {

/// Identifies one random stream. Random operators take a key as an argument and keep no state, so activation
/// checkpointing draws the same numbers when it recomputes a segment. Use one stream per call site and step.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;
};

constexpr int kPhiloxRounds = 10;
using PhiloxWords = std::array<uint32_t, 4>;
/// The round keys. They depend only on the seed.
using PhiloxKeys = std::array<std::array<uint32_t, 2>, kPhiloxRounds>;

constexpr PhiloxKeys philox_keys(uint64_t seed) {
  PhiloxKeys keys{};
  for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
    keys[round] = {static_cast<uint32_t>(seed) + round * 0x9E3779B9U,
                   static_cast<uint32_t>(seed >> 32) + round * 0xBB67AE85U};
  }
  return keys;
}

/// Rounds [kFirst, kLast) of Philox4x32.
template <int kFirst, int kLast>
constexpr PhiloxWords philox_rounds(const PhiloxKeys& keys, PhiloxWords x) {
  static_assert(kFirst <= kLast && kLast <= kPhiloxRounds);
  for (int round = kFirst; round < kLast; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53U} * x[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57U} * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ keys[static_cast<size_t>(round)][0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ keys[static_cast<size_t>(round)][1], static_cast<uint32_t>(p0)};
  }
  return x;
}
/// Philox4x32 (Salmon et al. 2011): four random words per counter, bit-identical on every device. Ten rounds are the
/// authors' default. Seven rounds, the fewest that passed all their tests, are for kernels that random number
/// generation limits.
template <int kRounds = kPhiloxRounds>
constexpr PhiloxWords philox(const PhiloxKeys& keys, uint64_t stream, uint64_t counter) {
  return philox_rounds<0, kRounds>(keys, {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                                          static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)});
}
constexpr PhiloxWords philox(const RandomKey& key, uint64_t counter) {
  return philox(philox_keys(key.seed), key.stream, counter);
}

/// The random word of element `index` of a stream: word index % 4 of counter index / 4.
constexpr uint32_t philox_word(const RandomKey& key, uint64_t index) { return philox(key, index / 4)[index % 4]; }

/// Dropout keeps an element if its word is at least this threshold.
constexpr uint32_t dropout_threshold(double probability) {
  return probability >= 1.0 ? 0xffffffffU : static_cast<uint32_t>(probability * 4294967296.0);
}

}  // namespace lamina
