#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "lamina/base/cache.h"
#include "lamina/tensor/tensor.h"

namespace lamina {
namespace {

/// Bit-identical, or both NaN.
template <class T>
bool same(const T& a, const T& b) {
  if (std::isnan(convert<float>(a)) && std::isnan(convert<float>(b))) return true;
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class From, class To>
void check_casts(const std::vector<From>& values) {
  using A = std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>;
  const auto n = static_cast<int64_t>(values.size());
  const Device device = Device::cpu(2);
  const Tensor source = Tensor::from(values, {n}, device);
  const Tensor dense = source.to(dtype_of<To>());
  // An offset of one element misaligns every vector and changes the length of the tail.
  const Tensor shifted = source.slice(0, 1, n - 1).to(dtype_of<To>());
  Tensor sum = Tensor::full({n}, 0.75, dtype_of<To>(), device);
  sum.add_(source);
  const To* one = dense.data<To>();
  const To* other = shifted.data<To>();
  const To* added = sum.data<To>();
  for (int64_t i = 0; i < n; ++i) {
    const From value = values[static_cast<size_t>(i)];
    const To expected = convert<To>(value);
    ASSERT_TRUE(same(one[i], expected) && (i == 0 || same(other[i - 1], expected)))
        << dtype_of<From>() << " to " << dtype_of<To>() << " of " << convert<float>(value) << " at " << i << ": "
        << convert<float>(one[i]) << " instead of " << convert<float>(expected);
    ASSERT_TRUE(same(added[i], convert<To>(A(0.75) + convert<A>(value))))
        << dtype_of<From>() << " added to " << dtype_of<To>() << " at " << i << ": " << convert<float>(value)
        << " + 0.75 gave " << convert<float>(added[i]);
  }
}

template <class Half>
std::vector<Half> all_halves() {
  std::vector<Half> values(65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) values[bits].bits = static_cast<uint16_t>(bits);
  return values;
}

/// Every bf16 and f16 value, f32 values at and next to their rounding midpoints, and random bit patterns.
std::vector<float> many_floats() {
  std::vector<float> values;
  for (uint32_t high = 0; high < 65536; ++high) {
    for (const uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  for (const f16 half : all_halves<f16>()) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(half));
    for (const uint32_t low : {0U, 0xfffU, 0x1000U, 0x1001U}) values.push_back(std::bit_cast<float>(bits + low));
  }
  std::mt19937 random(3);
  for (int i = 0; i < 200003; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  return values;
}

TEST(Cast, EveryHalfBecomesWhatTheScalarConversionSays) {
  check_casts<bf16, float>(all_halves<bf16>());
  check_casts<f16, float>(all_halves<f16>());
  check_casts<bf16, f16>(all_halves<bf16>());
  check_casts<f16, bf16>(all_halves<f16>());
  check_casts<bf16, bf16>(all_halves<bf16>());
  check_casts<f16, double>(all_halves<f16>());
}

TEST(Cast, FloatsRoundToNearestEvenAndNanStaysNan) {
  const std::vector<float> values = many_floats();
  check_casts<float, bf16>(values);
  check_casts<float, f16>(values);
  check_casts<float, float>(values);
  check_casts<float, double>(values);
}

TEST(Copy, TransposesAnyShape) {
  const Device device = Device::cpu(2);
  for (const Shape& shape : {Shape{3, 5}, Shape{64, 64}, Shape{65, 131}, Shape{1, 70}, Shape{9, 200}, Shape{200, 8}}) {
    for (const int64_t batch : {1, 3}) {
      const int64_t rows = shape[0];
      const int64_t columns = shape[1];
      std::vector<float> values(static_cast<size_t>(batch * rows * columns));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
      const Tensor source = Tensor::from(values, {batch, rows, columns}, device);
      const Tensor flipped = source.transpose(1, 2).contiguous();
      const Tensor turned = source.transpose(0, 2).to(DType::f64).contiguous();
      Tensor sum = Tensor::full({batch, columns, rows}, 1.0, DType::f32, device);
      sum.add_(source.transpose(1, 2));
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < columns; ++c) {
            const auto value = static_cast<float>((b * rows + r) * columns + c);
            ASSERT_EQ(flipped.data<float>()[(b * columns + c) * rows + r], value) << shape;
            ASSERT_EQ(sum.data<float>()[(b * columns + c) * rows + r], value + 1) << shape;
            ASSERT_EQ(turned.data<double>()[(c * rows + r) * batch + b], value) << shape;
          }
        }
      }
    }
  }
}

TEST(Copy, LargeTransposesAreCopiedWhole) {
  const Device device = Device::cpu(2);
  const int64_t columns = 2051;  // not a multiple of any vector or block
  const int64_t rows = (last_level_cache_bytes() / 8 / columns / 16 + 2) * 16;
  ASSERT_TRUE(exceeds_last_level_cache(4 * rows * columns));
  Tensor source = Tensor::empty({rows, columns}, DType::i32, device);
  for (int64_t i = 0; i < rows * columns; ++i) source.data<int32_t>()[i] = static_cast<int32_t>(i % 16777213);
  source = source.to(DType::f32);
  const Tensor turned = source.transpose(0, 1).contiguous();
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      ASSERT_EQ(turned.data<float>()[c * rows + r], static_cast<float>((r * columns + c) % 16777213)) << r << ", " << c;
    }
  }
}

TEST(Copy, LargeTargetsAreCopiedWhole) {
  const Device device = Device::cpu(2);
  const int64_t n = last_level_cache_bytes() / 8 + 1029;  // large enough for streaming stores
  ASSERT_TRUE(exceeds_last_level_cache(4 * n));
  Tensor source = Tensor::empty({n}, DType::f32, device);
  for (int64_t i = 0; i < n; ++i) source.data<float>()[i] = static_cast<float>(i);
  const Tensor target = source.clone();
  EXPECT_EQ(std::memcmp(source.raw(), target.raw(), static_cast<size_t>(source.nbytes())), 0);
}

}  // namespace
}  // namespace lamina
