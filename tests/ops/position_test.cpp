#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/reduce.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/ops/position/rotary.h"
#include "lamina/ops/position/tables.h"
#include "support/close.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

TEST(Alibi, SlopesOfThePaper) {
  // Section 3 of the ALiBi paper: 8 heads give 1/2, 1/4 … 1/256; 16 heads start at 1/sqrt(2).
  const auto eight = ops::alibi_slopes(8);
  for (int h = 0; h < 8; ++h) EXPECT_EQ(eight[static_cast<size_t>(h)], std::ldexp(1.0, -1 - h));
  EXPECT_DOUBLE_EQ(ops::alibi_slopes(16)[0], std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(ops::alibi_slopes(16)[15], 0x1p-8);
  EXPECT_EQ(ops::alibi_slopes(1), std::vector<double>{0x1p-8});
}

TEST(Alibi, OtherNumbersOfHeadsTakeEverySecondSlopeOfTheNextPower) {
  // The published get_slopes(12): the 8 slopes of eight heads, then the 1st, 3rd, 5th and 7th of sixteen.
  auto expected = ops::alibi_slopes(8);
  const auto sixteen = ops::alibi_slopes(16);
  for (size_t h = 0; h < 8; h += 2) expected.push_back(sixteen[h]);
  const auto twelve = ops::alibi_slopes(12);
  ASSERT_EQ(twelve.size(), 12U);
  for (size_t h = 0; h < 12; ++h) EXPECT_DOUBLE_EQ(twelve[h], expected[h]) << h;
  for (int64_t n = 1; n < 200; ++n) EXPECT_EQ(static_cast<int64_t>(ops::alibi_slopes(n).size()), n);
  EXPECT_NE(error_of([] { ops::alibi_slopes(0); }).find("n_heads is 0"), std::string::npos);
  const Tensor tensor = ops::alibi_slopes(3, Device::cpu(1));
  EXPECT_EQ(tensor.to_vector<float>(), (std::vector<float>{0x1p-4F, 0x1p-8F, 0x1p-2F}));
}

TEST(T5, BucketsOfThePublishedCode) {
  // Values of relative_position_bucket in the T5 reference code with 32 buckets and max_distance 128.
  const ops::T5Buckets both;
  const std::vector<std::pair<int64_t, int64_t>> published{
      {0, 0},     {-1, 1},    {-7, 7},     {-8, 8},   {-11, 8},  {-12, 9},  {-15, 9},  {-16, 10}, {-22, 10},
      {-23, 11},  {-31, 11},  {-32, 12},   {-45, 12}, {-46, 13}, {-63, 13}, {-64, 14}, {-90, 14}, {-91, 15},
      {-127, 15}, {-128, 15}, {-5000, 15}, {1, 17},   {7, 23},   {8, 24},   {16, 26},  {64, 30},  {128, 31}};
  for (const auto& [distance, bucket] : published) EXPECT_EQ(ops::t5_bucket(distance, both), bucket) << distance;
  const ops::T5Buckets causal{.bidirectional = false};
  const std::vector<std::pair<int64_t, int64_t>> decoder{{5, 0},    {0, 0},     {-1, 1},    {-15, 15},
                                                         {-16, 16}, {-18, 16},  {-19, 17},  {-32, 21},
                                                         {-64, 26}, {-113, 31}, {-127, 31}, {-1000, 31}};
  for (const auto& [distance, bucket] : decoder) EXPECT_EQ(ops::t5_bucket(distance, causal), bucket) << distance;
}

TEST(T5, BucketsAreMonotoneInRangeAndDefinedEverywhere) {
  for (const bool bidirectional : {false, true}) {
    for (const int64_t buckets : {4, 8, 32, 64}) {
      const ops::T5Buckets options{bidirectional, buckets, 100};
      int64_t last = 0;
      for (int64_t behind = 0; behind < 3000; ++behind) {
        const int64_t bucket = ops::t5_bucket(-behind, options);
        EXPECT_GE(bucket, last);
        last = bucket;
      }
      EXPECT_EQ(last, (bidirectional ? buckets / 2 : buckets) - 1);
      EXPECT_EQ(ops::t5_bucket(INT64_MIN, options), last);
      EXPECT_EQ(ops::t5_bucket(INT64_MAX, options), bidirectional ? buckets - 1 : 0);
    }
  }
  EXPECT_NE(error_of([] { ops::t5_bucket(1, {true, 30, 128}); }).find("30 buckets"), std::string::npos);
  EXPECT_NE(error_of([] { ops::t5_bucket(1, {true, 32, 8}); }).find("max_distance is 8"), std::string::npos);
}

TEST(T5, TheTableHoldsTheBuckets) {
  const auto table = ops::t5_bucket_table(50, {}, Device::cpu(1)).to_vector<int64_t>();
  ASSERT_EQ(table.size(), 99U);
  for (int64_t r = -49; r < 50; ++r) EXPECT_EQ(table[static_cast<size_t>(r + 49)], ops::t5_bucket(r));
}

// A second oracle: a pair (a, b) of a head at position m is the complex number a + ib, times e^(imθ).
TEST(Rotary, MultipliesPairsByUnitComplexNumbers) {
  using Complex = std::complex<double>;
  constexpr int64_t kSeq = 9;
  constexpr int64_t kPairs = 4;
  std::vector<double> x;
  for (int64_t i = 0; i < kSeq * 2 * kPairs; ++i) x.push_back(std::sin(3.7 * static_cast<double>(i) + 0.2));
  const ops::RotaryTables tables = ops::rotary_tables(kSeq, 2 * kPairs, {}, Device::cpu(1));
  const std::vector<double> angles = ops::rotary_frequencies(2 * kPairs, 10000.0);
  for (const auto pairing : {ops::RotaryPairing::interleaved, ops::RotaryPairing::half_split}) {
    const Tensor input = Tensor::from(x, {1, kSeq, 1, 2 * kPairs}, Device::cpu(1));
    const auto y = ops::rotary(input, tables.cos, tables.sin, {.pairing = pairing}).to_vector<double>();
    const auto pair = [&](const std::vector<double>& of, int64_t position, int64_t i) {
      const bool adjacent = pairing == ops::RotaryPairing::interleaved;
      const auto at = static_cast<size_t>(position * 2 * kPairs + (adjacent ? 2 * i : i));
      return Complex(of[at], of[at + (adjacent ? 1 : kPairs)]);
    };
    for (int64_t m = 0; m < kSeq; ++m) {
      for (int64_t i = 0; i < kPairs; ++i) {
        const double angle = static_cast<double>(m) * angles[static_cast<size_t>(i)];
        // The tables round cos and sin to f32, each by at most half an epsilon.
        EXPECT_LE(std::abs(pair(y, m, i) - pair(x, m, i) * std::polar(1.0, angle)),
                  epsilon(DType::f32) * std::abs(pair(x, m, i)))
            << m << " " << i;
      }
      // Re(q e^(imθ) · conj(k e^(inθ))) = Re(q conj(k) e^(i(m−n)θ)), with the query at 0 in the place of k.
      Complex score;
      Complex expected;
      double size = 0;
      for (int64_t i = 0; i < kPairs; ++i) {
        const double angle = static_cast<double>(m) * angles[static_cast<size_t>(i)];
        score += pair(y, m, i) * std::conj(pair(y, 0, i));
        expected += pair(x, m, i) * std::conj(pair(x, 0, i)) * std::polar(1.0, angle);
        size += std::abs(pair(x, m, i)) * std::abs(pair(x, 0, i));
      }
      EXPECT_NEAR(score.real(), expected.real(), 2 * epsilon(DType::f32) * size) << m;
    }
  }
}

TEST(Sinusoidal, IsTheFormula) {
  const Tensor table = ops::sinusoidal_table(50, 7, Device::cpu(1));
  const auto values = table.to_vector<float>();
  EXPECT_EQ(table.shape(), (Shape{50, 7}));
  for (int pos = 0; pos < 50; ++pos) {
    for (int i = 0; i < 7; ++i) {
      const double angle = pos / std::pow(10000.0, (i / 2) * 2 / 7.0);
      const double expected = i % 2 == 0 ? std::sin(angle) : std::cos(angle);
      EXPECT_NEAR(values[static_cast<size_t>(pos * 7 + i)], expected, 0x1p-23);
    }
  }
  EXPECT_EQ(ops::sinusoidal_table(0, 8, Device::cpu(1)).numel(), 0);
  EXPECT_NE(error_of([] { ops::sinusoidal_table(-1, 8, Device::cpu(1)); }).find("-1"), std::string::npos);
}

TEST(RotaryTables, AnglesFactorAndFirstPosition) {
  const Device device = Device::cpu(2);
  const auto plain = ops::rotary_tables(6, 4, {.theta = 100.0}, device);
  EXPECT_EQ(plain.cos.shape(), (Shape{6, 2}));
  const auto cos = plain.cos.to_vector<float>();
  EXPECT_FLOAT_EQ(cos[5 * 2], static_cast<float>(std::cos(5.0)));
  EXPECT_FLOAT_EQ(cos[5 * 2 + 1], static_cast<float>(std::cos(0.5)));
  const auto scaled =
      ops::rotary_tables(2, 4, {.frequencies = {1.0, 0.1}, .attention_factor = 2.0, .first_position = 4}, device);
  EXPECT_FLOAT_EQ(scaled.cos.to_vector<float>()[2], 2 * cos[10]);
  EXPECT_FLOAT_EQ(scaled.sin.to_vector<float>()[3], static_cast<float>(2 * std::sin(0.5)));
  EXPECT_TRUE(ops::rotary_tables(6, 4, {}, Device::meta()).sin.is_meta());
  EXPECT_NE(error_of([&] { ops::rotary_tables(6, 5, {}, device); }).find("even"), std::string::npos);
  EXPECT_NE(error_of([&] { ops::rotary_tables(6, 4, {.theta = -1}, device); }).find("theta is -1"), std::string::npos);
  EXPECT_NE(error_of([&] { ops::rotary_tables(6, 4, {.frequencies = {1.0}}, device); }).find("1 frequencies"),
            std::string::npos);
  EXPECT_NE(error_of([&] { ops::rotary_tables(6, 2, {.frequencies = {NAN}}, device); }).find("finite"),
            std::string::npos);
}

TEST(Rotary, BadArgumentsAreNamed) {
  const Device device = Device::cpu(1);
  const Tensor x = Tensor::zeros({2, 3, 2, 8}, DType::f32, device);
  const auto tables = ops::rotary_tables(4, 8, {}, device);
  const auto message = [&](const Tensor& input, const ops::RotaryOptions& options) {
    return error_of([&] { ops::rotary(input, tables.cos, tables.sin, options); });
  };
  const auto positions = [&](std::vector<int64_t> values, const Shape& shape) {
    return ops::RotaryOptions{.positions = Tensor::from(values, shape, device)};
  };
  EXPECT_EQ(message(x, {}), "");
  EXPECT_NE(message(x, {.offset = 2}).find("outside the tables of 4"), std::string::npos);
  EXPECT_NE(message(x, {.offset = -1}).find("-1"), std::string::npos);
  EXPECT_NE(message(x, {.offset = INT64_MAX}).find("outside"), std::string::npos);
  EXPECT_NE(message(x, {.rotary_dim = 10}).find("rotary dimension is 10"), std::string::npos);
  EXPECT_NE(message(x, {.rotary_dim = 3}).find("even"), std::string::npos);
  EXPECT_NE(message(x, {.rotary_dim = 2}).find("cos is [4,4]"), std::string::npos);
  EXPECT_NE(message(x, positions({0, 1, 4}, {3})).find("position 4 (element 2"), std::string::npos);
  EXPECT_NE(message(x, positions({0, -1, 2}, {3})).find("position -1"), std::string::npos);
  EXPECT_NE(message(x, positions({0, 1}, {2})).find("positions is [2]"), std::string::npos);
  EXPECT_NE(message(x.reshape({6, 2, 8}), {}).find("[batch, seq, heads, head_dim]"), std::string::npos);
  EXPECT_NE(message(x.to(DType::i32), {}).find("i32"), std::string::npos);
  EXPECT_NE(message(Tensor(), {}).find("undefined"), std::string::npos);
}

TEST(Rotary, InPlaceHasTheGradientsOfACopyHoweverTheyArrive) {
  const Device device = Device::cpu(2);
  const ops::RotaryTables tables = ops::rotary_tables(5, 8, {}, device);
  std::vector<float> numbers(2 * 5 * 3 * 8);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<float>(i));
  const auto gradient = [&](bool in_place, bool twice) {
    Tape tape;
    Tensor x = Tensor::from(numbers, {2, 5, 3, 8}, device);
    tape.watch(x);
    const Tensor all = x.clone();
    Tensor y = in_place ? ops::rotary_in_place(all, 2, tables.cos, tables.sin)
                        : ops::concat({ops::rotary(all.slice(2, 0, 2), tables.cos, tables.sin), all.slice(2, 2, 1)}, 2);
    // The gradient arrives once as slices of the result, once as a sum of two tensors.
    const std::vector<Tensor> parts = ops::split(y, {1, 2}, 2);
    Tensor out = ops::add(ops::sum(ops::mul(parts[0], parts[0])), ops::sum(parts[1]));
    if (twice) out = ops::add(out, ops::sum(ops::mul(y, y)));
    tape.backward(out);
    return tape.grad(x).to_vector<float>();
  };
  for (const bool twice : {false, true}) EXPECT_EQ(gradient(true, twice), gradient(false, twice));
}

TEST(Rotary, ALargeResultIsThatOfItsParts) {
  // Large enough for streaming stores.
  const Device device = Device::cpu(2);
  constexpr int64_t kSeq = 8192;
  Tensor x = Tensor::empty({1, kSeq, 8, 128}, DType::f32, device);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i * 7919 % 2003);
  const auto tables = ops::rotary_tables(kSeq, 128, {}, device);
  for (const auto pairing : {ops::RotaryPairing::half_split, ops::RotaryPairing::interleaved}) {
    const Tensor y = ops::rotary(x, tables.cos, tables.sin, {.pairing = pairing});
    for (int64_t at = 0; at < kSeq; at += 1024) {
      const Tensor part = ops::rotary(x.slice(1, at, 1024), tables.cos, tables.sin, {.pairing = pairing, .offset = at});
      ASSERT_EQ(y.slice(1, at, 1024).to_vector<float>(), part.to_vector<float>());
    }
  }
}

TEST(Rotary, ASliceOfAJoinedProjectionIsReadWhereItLies) {
  const Device device = Device::cpu(1);
  std::vector<float> values(2 * 3 * 6 * 8);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  const Tensor joined = Tensor::from(values, {2, 3, 6, 8}, device);
  const auto tables = ops::rotary_tables(3, 8, {}, device);
  const Tensor k = joined.slice(2, 4, 1);
  device.allocator().reset_peak();
  const int64_t before = device.allocator().counters().live;
  const Tensor y = ops::rotary(k, tables.cos, tables.sin);
  EXPECT_LT(device.allocator().counters().peak - before, 2 * k.nbytes()) << "the slice was copied first";
  EXPECT_EQ(y.to_vector<float>(), ops::rotary(k.clone(), tables.cos, tables.sin).to_vector<float>());
}

}  // namespace
}  // namespace lamina::testing
