#include "lamina/base/philox.h"

#include <gtest/gtest.h>

#include <vector>

namespace lamina {
namespace {

using Words = std::array<uint32_t, 4>;

/// In Random123's names, words c0, c1 are the counter, c2, c3 the random stream, and k0, k1 the seed.
template <int kRounds = kPhiloxRounds>
Words philox_words(const Words& counter, uint32_t k0, uint32_t k1) {
  const uint64_t seed = uint64_t{k1} << 32 | k0;
  const uint64_t stream = uint64_t{counter[3]} << 32 | counter[2];
  return philox<kRounds>(philox_keys(seed), stream, uint64_t{counter[1]} << 32 | counter[0]);
}

TEST(philox, KnownAnswersOfRandom123) {
  EXPECT_EQ(philox_words({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox_words({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox_words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(philox, KnownAnswersOfRandom123AfterSevenRounds) {
  EXPECT_EQ(philox_words<7>({0, 0, 0, 0}, 0, 0), (Words{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(philox_words<7>({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff),
            (Words{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(philox_words<7>({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

TEST(philox, RoundsGoOn) {
  const PhiloxKeys keys = philox_keys(11);
  EXPECT_EQ((philox_rounds<7, 10>(keys, philox<7>(keys, 3, 4))), philox({.seed = 11, .stream = 3}, 4));
  EXPECT_EQ((philox_rounds<7, 9>(keys, philox<7>(keys, 3, 4))), philox<9>(keys, 3, 4));
}

TEST(philox, WordsOfAStreamFollowTheCounter) {
  const RandomKey key{.seed = 5, .stream = 9};
  for (uint64_t index = 0; index < 40; ++index) EXPECT_EQ(philox_word(key, index), philox(key, index / 4)[index % 4]);
  const uint64_t far = uint64_t{1} << 40;
  EXPECT_EQ(philox_word(key, far + 3), philox(key, far / 4)[3]);
  EXPECT_EQ(philox(key, far), philox(philox_keys(5), 9, far));
  EXPECT_NE(philox(key, 0), philox({.seed = 5, .stream = 10}, 0));
  EXPECT_NE(philox(key, 0), philox({.seed = 6, .stream = 9}, 0));
}

TEST(philox, DropoutThreshold) {
  EXPECT_EQ(dropout_threshold(0.0), 0U);
  EXPECT_EQ(dropout_threshold(0.5), 0x80000000U);
  EXPECT_EQ(dropout_threshold(1.0), 0xffffffffU);
  int dropped = 0;
  for (uint64_t i = 0; i < 10000; ++i) dropped += philox_word({.seed = 1}, i) < dropout_threshold(0.3) ? 1 : 0;
  EXPECT_NEAR(dropped, 3000, 3 * 46);  // three standard deviations of the binomial
}

}  // namespace
}  // namespace lamina
