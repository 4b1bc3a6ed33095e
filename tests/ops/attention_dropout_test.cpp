// Statistics of attention dropout: the rate of kept weights, and independence between neighbours, heads, rows and
// random streams. The operator's case (attention_case.cpp) checks the exact mask.
#include "lamina/ops/attention/attention_dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lamina/ops/attention/attention.h"
#include "support/close.h"

namespace lamina::ops {
namespace {

using testing::rounding_tolerance;

constexpr int64_t kBatch = 2;
constexpr int64_t kHeads = 3;
constexpr int64_t kSeq = 131;
constexpr int64_t kRoundings = 4;  // exponential, reciprocal of the sum, weight, dropout factor; the sum is exact

/// Makes each attention weight visible: q and k are zero, so weights are uniform, and values are one-hot per key.
class Weights {
 public:
  Weights(double dropout, const RandomKey& key) {
    const Device device = Device::cpu(1);
    const Tensor q = Tensor::full({kBatch, kSeq, kHeads, 1}, 0.0, DType::f32, device);
    std::vector<float> one_hot(static_cast<size_t>(kBatch * kSeq * kSeq));
    for (int64_t row = 0; row < kBatch * kSeq; ++row) one_hot[static_cast<size_t>(row * kSeq + row % kSeq)] = 1;
    const Tensor k = Tensor::full({kBatch, kSeq, 1, 1}, 0.0, DType::f32, device);
    const Tensor v = Tensor::from(one_hot, {kBatch, kSeq, 1, kSeq}, device);
    const Tensor y = attention(q, k, v, {.causal = false, .dropout = dropout, .dropout_key = key});
    values_.assign(y.data<float>(), y.data<float>() + y.numel());
  }
  static int64_t count() { return kBatch * kHeads * kSeq * kSeq; }
  /// The weight times the number of keys: 0 if dropped, else dropout's scale.
  double at(int64_t b, int64_t head, int64_t query, int64_t key) const {
    const int64_t index = ((b * kSeq + query) * kHeads + head) * kSeq + key;
    return static_cast<double>(values_[static_cast<size_t>(index)]) * kSeq;
  }
  bool kept(int64_t b, int64_t head, int64_t query, int64_t key) const { return at(b, head, query, key) != 0; }

 private:
  std::vector<float> values_;
};

template <class F>
void for_all(const F& fn) {
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t query = 0; query < kSeq; ++query) {
        for (int64_t key = 0; key < kSeq; ++key) fn(b, head, query, key);
      }
    }
  }
}

/// Five standard deviations of a binomial count with `of` trials.
double five_sigma(double share, double of) { return 5 * std::sqrt(of * share * (1 - share)); }

TEST(AttentionDropout, KeepsItsShareAndTheExpectation) {
  for (const double p : {0.001, 0.1, 1.0 / 3, 0.5, 0.75, 0.99}) {
    const Weights weights(p, {17, 4});
    const double share = 1 - attention_dropout_threshold(p) / 65536.0;
    EXPECT_NEAR(share, 1 - p, 0.5 / 65536);
    double kept = 0;
    for_all([&](int64_t b, int64_t head, int64_t query, int64_t key) {
      const double weight = weights.at(b, head, query, key);
      if (weight == 0) return;
      ++kept;
      ASSERT_NEAR(weight, 1 / share, rounding_tolerance({1 / share}, kRoundings, DType::f32));
    });
    const auto all = static_cast<double>(Weights::count());
    EXPECT_NEAR(kept, share * all, five_sigma(share, all)) << p;
  }
}

TEST(AttentionDropout, RoundsProbabilities) {
  EXPECT_EQ(attention_dropout_threshold(0.0), 0U);
  EXPECT_EQ(attention_dropout_threshold(0.5), 32768U);
  EXPECT_EQ(attention_dropout_threshold(0.1), 6554U);
  EXPECT_EQ(attention_dropout_threshold(0.49 / 65536), 0U);
  EXPECT_EQ(attention_dropout_threshold(0.51 / 65536), 1U);
  EXPECT_EQ(attention_dropout_threshold(1 - 1e-9), 65535U);
  EXPECT_EQ(attention_dropout_factor(0), 1.0);
  EXPECT_EQ(attention_dropout_factor(65535), 65536.0);
  const Weights none(1e-7, {1, 1});
  const Weights few(1 - 1e-9, {1, 1});
  int64_t kept = 0;
  for_all([&](int64_t b, int64_t head, int64_t query, int64_t key) {
    ASSERT_NEAR(none.at(b, head, query, key), 1.0, rounding_tolerance({1.0}, kRoundings, DType::f32));
    ASSERT_TRUE(std::isfinite(few.at(b, head, query, key)));
    kept += few.kept(b, head, query, key) ? 1 : 0;
  });
  EXPECT_LE(kept, 14);  // 1.6 are expected; P(more than 14) < 1e-9
}

/// Two weights that differ in any of these coordinates are kept independently of each other.
TEST(AttentionDropout, NeighboursAreIndependent) {
  constexpr double kShare = 0.7;
  const RandomKey key{3, 8};
  const Weights weights(1 - kShare, key);
  const double share = 1 - attention_dropout_threshold(1 - kShare) / 65536.0;
  const auto expect_independent = [&](const Weights& other, int64_t b1, int64_t heads, int64_t queries, int64_t keys) {
    double pairs = 0;
    double both = 0;
    for_all([&](int64_t b, int64_t head, int64_t query, int64_t k) {
      if (b + b1 >= kBatch || head + heads >= kHeads || query + queries >= kSeq || k + keys >= kSeq) return;
      ++pairs;
      both += weights.kept(b, head, query, k) && other.kept(b + b1, head + heads, query + queries, k + keys) ? 1 : 0;
    });
    // Each weight is in two overlapping pairs, which raises the standard deviation by up to √3.
    EXPECT_NEAR(both, share * share * pairs, std::sqrt(3.0) * five_sigma(share * share, pairs))
        << b1 << " rows, " << heads << " heads, " << queries << " queries, " << keys << " keys apart";
  };
  for (const int64_t apart : {1, 2, 7, 8, 9, 15, 16, 32, 64, 65}) {
    expect_independent(weights, 0, 0, apart, 0);
    expect_independent(weights, 0, 0, 0, apart);
    expect_independent(weights, 0, 0, apart, apart);
  }
  for (const int64_t heads : {1, 2}) expect_independent(weights, 0, heads, 0, 0);
  expect_independent(weights, 1, 0, 0, 0);
  expect_independent(Weights(1 - kShare, {3, 9}), 0, 0, 0, 0);
  expect_independent(Weights(1 - kShare, {4, 8}), 0, 0, 0, 0);
  expect_independent(Weights(1 - kShare, {3, 8 + (uint64_t{1} << 32)}), 0, 0, 0, 0);
}

/// dropout_patch_mask(), which the GPU kernels use, gives the mask of the vectorized CPU kernel.
TEST(AttentionDropout, PatchesHoldTheSameWeights) {
  const RandomKey key{uint64_t{1} << 40 | 5, ~uint64_t{0} - 3};
  const Weights weights(0.3, key);
  const PhiloxKeys keys = philox_keys(key.seed);
  const DropoutPlanes planes = dropout_planes(attention_dropout_threshold(0.3));
  for_all([&](int64_t b, int64_t head, int64_t query, int64_t k) {
    const int64_t row = (b * kHeads + head) * dropout_patches(kSeq) + dropout_patch(query);
    const uint32_t kept = dropout_patch_mask(keys, key.stream, static_cast<uint32_t>(row),
                                             static_cast<uint32_t>(dropout_patch(k)), planes);
    ASSERT_EQ((kept >> weight_in_patch(query, k) & 1) != 0, weights.kept(b, head, query, k));
  });
}

/// Philox counters stay distinct even for row and column numbers that exceed 32 bits when packed together.
TEST(AttentionDropout, RowsAndColumnsDoNotMeet) {
  const PhiloxKeys keys = philox_keys(1);
  const DropoutPlanes half = dropout_planes(attention_dropout_threshold(0.5));
  const auto at = [&](uint32_t row, uint32_t column) {
    return dropout_patch_mask(keys, 2, row, column, half) & 0xffff;
  };
  const uint32_t last = (uint32_t{1} << 29) - 1;  // patch column of the last of 2³¹ keys
  EXPECT_NE(at(0, last), at(0, 0));
  EXPECT_NE(at(1, 0), at(0, last + 1));
  EXPECT_NE(at(0xffffffff, last), at(0xfffffffe, last));
  EXPECT_EQ(dropout_patch((int64_t{1} << 31) - 1), int64_t{last});
}

}  // namespace
}  // namespace lamina::ops
