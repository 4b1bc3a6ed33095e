// Frequencies of scaled RoPE, against values derived by hand from the papers' formulas.
#include "lamina/nn/rope_scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"

namespace lamina::testing {
namespace {

arch::Rope rope(int64_t dim, const arch::RopeScaling& scaling, double theta = 10000.0) {
  arch::Rope rope;
  rope.theta = theta;
  rope.rotary_dim = dim;
  rope.scaling = scaling;
  return rope;
}

void expect_angles(const nn::RopeFrequencies& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.angles.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found.angles[i], expected[i], 1e-12 * expected[i]) << i;
}

// theta = 10000 and 8 dimensions: frequencies 1, 0.1, 0.01, 0.001.
TEST(RopeScaling, PlainAndInterpolated) {
  expect_angles(nn::rope_frequencies(rope(8, arch::NoScaling{}), 99), {1, 0.1, 0.01, 0.001});
  expect_angles(nn::rope_frequencies(rope(8, arch::LinearScaling{4.0}), 99), {0.25, 0.025, 0.0025, 0.00025});
}

// NTK scaling raises theta by s^(8/6): pair i slows down by s^(i/3), the last pair by s itself.
TEST(RopeScaling, NtkSlowsTheLastPairByTheFactor) {
  const double third = std::cbrt(4.0);
  expect_angles(nn::rope_frequencies(rope(8, arch::NtkScaling{4.0}), 99),
                {1, 0.1 / third, 0.01 / (third * third), 0.001 / 4});
  expect_angles(nn::rope_frequencies(rope(2, arch::NtkScaling{4.0}), 99), {1});
}

TEST(RopeScaling, DynamicNtkGrowsWithTheLengthBeyondTraining) {
  const arch::Rope dynamic = rope(8, arch::DynamicNtkScaling{2.0, 16});
  expect_angles(nn::rope_frequencies(dynamic, 5), {1, 0.1, 0.01, 0.001});
  expect_angles(nn::rope_frequencies(dynamic, 16), {1, 0.1, 0.01, 0.001});
  const double ratio = 2.0 * 40 / 16 - 1;  // 4
  expect_angles(nn::rope_frequencies(dynamic, 40),
                {1, 0.1 / std::cbrt(ratio), 0.01 / std::cbrt(ratio * ratio), 0.001 / ratio});
  EXPECT_TRUE(nn::depends_on_length(dynamic.scaling));
  EXPECT_FALSE(nn::depends_on_length(arch::YarnScaling{}));
}

// theta = 2^16 and 8 dimensions: pair i has frequency 2^(-4i). Within 2π·64 positions the pairs rotate 64, 4, 1/4, 1/64
// times, so b rotations belong to pair log2(64/b)/4: 0.25 for b = 32, 1.5 for b = 1.
TEST(RopeScaling, YarnRampsBetweenTheTwoTurnCounts) {
  arch::YarnScaling yarn{.factor = 4.0, .original_length = 402, .attention_factor = 1.3};
  const double low = std::log(402 / (32 * 2 * std::numbers::pi)) / std::log(16.0);  // 402 ≈ 2π·64
  const double high = std::log(402 / (1 * 2 * std::numbers::pi)) / std::log(16.0);
  EXPECT_NEAR(low, 0.25, 1e-3);
  EXPECT_NEAR(high, 1.5, 1e-3);
  // With truncation the ramp goes from pair 0 to pair 2 and is 1/2 at pair 1.
  const auto rounded = nn::rope_frequencies(rope(8, yarn, 65536.0), 9);
  expect_angles(rounded, {1, 0.0625 * (0.5 + 0.5 / 4), 0.00390625 / 4, 0.000244140625 / 4});
  EXPECT_EQ(rounded.attention_factor, 1.3);
  yarn.truncate = false;
  const double ramp = (1 - low) / (high - low);
  expect_angles(nn::rope_frequencies(rope(8, yarn, 65536.0), 9),
                {1, 0.0625 * (1 - ramp + ramp / 4), 0.00390625 / 4, 0.000244140625 / 4});
}

TEST(RopeScaling, YarnsAttentionFactorIsResolvedFromItsMagnitudes) {
  const auto factor = [](const std::vector<std::string>& more) {
    std::vector<std::string> sets{"position.scaling.kind=yarn", "position.scaling.factor=4",
                                  "position.scaling.original_length=16"};
    sets.insert(sets.end(), more.begin(), more.end());
    const auto spec = arch::resolve(arch::with_overrides(arch::load_preset("llama-tiny"), sets));
    const auto& attention = std::get<arch::Attention>(spec.layers[0].pattern[0].mixer);
    return nn::rope_frequencies(std::get<arch::Rope>(*attention.position), 8).attention_factor;
  };
  EXPECT_NEAR(factor({}), 1.1386294361119891, 1e-15);  // 0.1 · ln 4 + 1
  EXPECT_NEAR(factor({"position.scaling.mscale=0.707", "position.scaling.mscale_all_dim=1"}),
              (0.0707 * std::log(4.0) + 1) / 1.1386294361119891, 1e-15);
  EXPECT_EQ(factor({"position.scaling.attention_factor=0.5"}), 0.5);
}

// Wavelengths 2π/f: 6.28, 62.8, 628, 6283. The bands end at 64/4 = 16 and 64/1 = 64.
TEST(RopeScaling, BandsKeepBlendOrInterpolate) {
  const arch::Llama3Scaling bands{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_length = 64};
  const double kept = (64 / (20 * std::numbers::pi) - 1) / 3;
  expect_angles(nn::rope_frequencies(rope(8, bands), 9), {1, 0.1 * kept + 0.1 / 8 * (1 - kept), 0.01 / 8, 0.001 / 8});
}

TEST(RopeScaling, LongRopeSwitchesListsBeyondTheOriginalLength) {
  const arch::LongRopeScaling lists{{1, 2, 4, 5}, {2, 4, 8, 10}, 16, 1.2};
  expect_angles(nn::rope_frequencies(rope(8, lists), 16), {1, 0.05, 0.0025, 0.0002});
  const auto beyond = nn::rope_frequencies(rope(8, lists), 17);
  expect_angles(beyond, {0.5, 0.025, 0.00125, 0.0001});
  EXPECT_EQ(beyond.attention_factor, 1.2);
}

}  // namespace
}  // namespace lamina::testing
