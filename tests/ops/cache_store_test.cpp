#include "lamina/ops/attention/cache_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lamina/ops/attention/attention_decode.h"
#include "support/close.h"
#include "support/error_of.h"
#include "support/random_tensor.h"

namespace lamina::testing {
namespace {

TEST(CacheStore, ConvertsToTheBitAsTensorsDo) {
  const Device device = Device::cpu(2);
  const std::vector<DType> types{DType::f32, DType::f64, DType::bf16, DType::f16};
  for (const DType from : types) {
    for (const DType to : types) {
      const Tensor k = random_tensor({2, 3, 2, 13}, 1, from);
      const Tensor cache = Tensor::zeros({2, 2, 5, 13}, to, device);
      ops::cache_store(cache, Tensor(), k, Tensor(), Tensor::from<int64_t>({2, 0}, {2}, device));
      for (int64_t row = 0; row < 2; ++row) {
        EXPECT_EQ(cache.slice(0, row, 1).slice(2, row == 0 ? 2 : 0, 3).to_vector<double>(),
                  k.slice(0, row, 1).transpose(1, 2).to(to).to_vector<double>())
            << from << " to " << to;
      }
    }
  }
}

TEST(CacheStore, BadArgumentsAreNamed) {
  const Device device = Device::cpu(1);
  const Tensor cache = Tensor::zeros({2, 3, 5, 4}, DType::f32, device);
  const Tensor fresh = Tensor::zeros({2, 2, 3, 4}, DType::f32, device);
  const Tensor places = Tensor::from<int64_t>({0, 3}, {2}, device);
  const auto message = [&](const Tensor& k_cache, const Tensor& v_cache, const Tensor& k, const Tensor& v,
                           const Tensor& at) {
    return error_of([&] { ops::cache_store(k_cache, v_cache, k, v, at); });
  };
  const auto at = [&](std::initializer_list<int64_t> values) {
    return message(cache, cache, fresh, fresh, Tensor::from(std::vector<int64_t>(values), {2}, device));
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_EQ(message(cache, cache, fresh, fresh, places), "");
  EXPECT_EQ(message(cache, Tensor(), fresh, Tensor(), places), "");
  EXPECT_TRUE(has(at({0, 4}), "places[1] is 4; expected 0 up to 3"));
  EXPECT_TRUE(has(at({-1, 0}), "places[0] is -1"));
  EXPECT_TRUE(has(at({INT64_MAX, 0}), "places[0]"));
  EXPECT_TRUE(has(message(cache, cache, fresh, Tensor(), places), "v_cache is given without v"));
  EXPECT_TRUE(has(message(cache, Tensor(), fresh, fresh, places), "v is given without v_cache"));
  EXPECT_TRUE(has(message(cache, cache, fresh, fresh, Tensor()), "places is undefined"));
  EXPECT_TRUE(has(message(cache, cache, fresh, fresh, places.to(DType::i32)), "i32"));
  EXPECT_TRUE(has(message(cache, cache, fresh, fresh, places.slice(0, 0, 1)), "places"));
  EXPECT_TRUE(has(message(cache.to(DType::i32), cache, fresh, fresh, places), "k_cache is i32"));
  EXPECT_TRUE(has(message(cache, cache.to(DType::bf16), fresh, fresh, places), "v_cache"));
  EXPECT_TRUE(has(message(cache, cache, fresh, fresh.to(DType::bf16), places), "v is bf16"));
  EXPECT_TRUE(has(message(cache, cache, fresh.slice(3, 0, 3), fresh, places), "k_cache"));
  EXPECT_TRUE(has(message(cache, cache, fresh, fresh.slice(1, 0, 1), places), "v is"));
  EXPECT_TRUE(has(message(cache, cache.slice(2, 0, 4), fresh, fresh, places), "v_cache"));
  EXPECT_TRUE(has(message(cache.reshape({2, 3, 20}), cache, fresh, fresh, places), "capacity, width"));
  const Tensor turned = Tensor::zeros({2, 3, 4, 5}, DType::f32, device).transpose(2, 3);
  EXPECT_TRUE(has(message(turned, cache, fresh, fresh, places), "has stride 5"));
  EXPECT_TRUE(has(message(cache, cache, fresh, fresh, places.to(Device::meta())), "meta"));
  const auto bytes = [&](const Tensor& to, const Tensor& scales) {
    return error_of([&] { ops::cache_store(to, Tensor(), fresh, Tensor(), places, {scales, Tensor()}); });
  };
  const Tensor scales = Tensor::zeros({2, 3, 5}, DType::f32, device);
  EXPECT_EQ(bytes(cache.to(DType::u8), scales), "");
  EXPECT_TRUE(has(bytes(cache.to(DType::u8), Tensor()), "u8 without scales"));
  EXPECT_TRUE(has(bytes(cache.to(DType::u8), scales.to(DType::bf16)), "bf16"));
  EXPECT_TRUE(has(bytes(cache.to(DType::u8), scales.slice(2, 0, 4)), "scales"));
  EXPECT_TRUE(has(bytes(cache, scales), "only u8 caches take scales"));
}

TEST(CacheStore, EightBitsKeepEveryNumberToHalfAStep) {
  const Tensor k = random_tensor({2, 5, 3, 37}, 1, DType::f32);
  const Device& device = k.device();
  Tensor cache = Tensor::zeros({2, 3, 9, 37}, DType::u8, device);
  Tensor scales = Tensor::zeros({2, 3, 9}, DType::f32, device);
  ops::cache_store(cache, Tensor(), k, Tensor(), Tensor::from<int64_t>({4, 0}, {2}, device), {scales, Tensor()});
  for (int64_t row = 0; row < 2; ++row) {
    const int64_t place = row == 0 ? 4 : 0;
    const auto back = ops::dequantize(cache.slice(0, row, 1).slice(2, place, 5).transpose(1, 2),
                                      scales.slice(0, row, 1).slice(2, place, 5).transpose(1, 2), DType::f32)
                          .to_vector<double>();
    const auto truth = k.slice(0, row, 1).to_vector<double>();
    ASSERT_EQ(back.size(), truth.size());
    for (size_t first = 0; first < truth.size(); first += 37) {
      const auto begin = truth.begin() + static_cast<ptrdiff_t>(first);
      const std::vector<double> head(begin, begin + 37);
      const double half_step = largest_magnitude(head) / 254;
      for (size_t c = 0; c < 37; ++c) {
        // three operations: scale, division, product
        EXPECT_NEAR(back[first + c], head[c], half_step + rounding_tolerance(head, 3, DType::f32));
      }
    }
  }
}

TEST(CacheStore, EightBitsOfZerosTinyAndNonFiniteNumbers) {
  const Device device = Device::cpu(1);
  const auto back = [&](const std::vector<float>& values) {
    const auto width = static_cast<int64_t>(values.size());
    Tensor cache = Tensor::zeros({1, 1, 1, width}, DType::u8, device);
    Tensor scales = Tensor::zeros({1, 1, 1}, DType::f32, device);
    ops::cache_store(cache, Tensor(), Tensor::from(values, {1, 1, 1, width}, device), Tensor(),
                     Tensor::from<int64_t>({0}, {1}, device), {scales, Tensor()});
    return ops::dequantize(cache, scales, DType::f32).to_vector<float>();
  };
  EXPECT_EQ(back({0, 0, -0.0F}), std::vector<float>(3, 0.0F));
  EXPECT_EQ(back({1e-38F, -1e-40F}), std::vector<float>(2, 0.0F));
  EXPECT_EQ(back({127, -127, 64, 0.5F, 1.5F}), (std::vector<float>{127, -127, 64, 0, 2}));
  for (const float other : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const float value : back({1, other, 2, 0})) EXPECT_FALSE(std::isfinite(value)) << other;
  }
}

/// Every key and value errs by at most half a quantization step. So the error of a score is at most δ = scale · ‖q‖₁ ·
/// half a step. A weight is off by a factor between e^−2δ and e^2δ. The error of y is at most half a step plus (e^2δ −
/// 1) times the largest value.
TEST(CacheStore, AttentionOverEightBitsErrsByTheSteps) {
  constexpr int64_t kKeys = 70;
  constexpr int64_t kWidth = 24;
  const Tensor q = random_tensor({1, 1, 2, kWidth}, 1, DType::f32);
  const Tensor k = random_tensor({1, kKeys, 2, kWidth}, 2, DType::f32);
  const Tensor v = random_tensor({1, kKeys, 2, kWidth}, 3, DType::f32);
  const Device& device = q.device();
  const auto cache = [&] { return Tensor::zeros({1, 2, kKeys, kWidth}, DType::u8, device); };
  const auto scale = [&] { return Tensor::zeros({1, 2, kKeys}, DType::f32, device); };
  const Tensor keys = cache();
  const Tensor values = cache();
  const ops::CacheScales scales{scale(), scale()};
  ops::cache_store(keys, values, k, v, Tensor::from<int64_t>({0}, {1}, device), scales);
  const Tensor length = Tensor::from<int64_t>({kKeys}, {1}, device);
  const auto ours = ops::attention_decode(q, keys, values, length, {}, {}, scales).to_vector<double>();
  const auto qs = q.to_vector<double>();
  const auto ks = k.to_vector<double>();
  const auto vs = v.to_vector<double>();
  for (size_t head = 0; head < 2; ++head) {
    const double factor = 1 / std::sqrt(static_cast<double>(kWidth));
    double length_of_q = 0;
    for (size_t c = 0; c < kWidth; ++c) length_of_q += std::abs(qs[head * kWidth + c]);
    double sum = 0;
    std::vector<double> y(kWidth);
    for (size_t j = 0; j < kKeys; ++j) {
      const size_t at = (j * 2 + head) * kWidth;
      double score = 0;
      for (size_t c = 0; c < kWidth; ++c) score += factor * qs[head * kWidth + c] * ks[at + c];
      sum += std::exp(score);
      for (size_t c = 0; c < kWidth; ++c) y[c] += std::exp(score) * vs[at + c];
    }
    const double half_step = 1.0 / 254;  // largest rounding error of values up to 1
    const double delta = factor * length_of_q * half_step;
    for (size_t c = 0; c < kWidth; ++c) {
      EXPECT_NEAR(ours[head * kWidth + c], y[c] / sum,
                  half_step + std::exp(2 * delta) - 1 + rounding_tolerance({1.0}, kKeys + kWidth, DType::f32));
    }
  }
}

TEST(CacheStore, NothingIsWrittenWhereARowDoesNotFit) {
  const Device device = Device::cpu(1);
  const Tensor cache = Tensor::zeros({2, 1, 3, 2}, DType::f32, device);
  const Tensor fresh = Tensor::full({2, 2, 1, 2}, 1.0, DType::f32, device);
  EXPECT_NE(error_of([&] {
              ops::cache_store(cache, Tensor(), fresh, Tensor(), Tensor::from<int64_t>({0, 2}, {2}, device));
            }),
            "");
  EXPECT_EQ(cache.to_vector<float>(), std::vector<float>(12, 0.0F));
}

}  // namespace
}  // namespace lamina::testing
