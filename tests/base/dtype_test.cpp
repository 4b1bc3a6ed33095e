#include "lamina/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "lamina/base/error.h"
#include "lamina/base/simd-inl.h"

namespace lamina {
namespace {

/// Value of a 16-bit float with the given field widths, by the format's definition.
double value_from_fields(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int sign = bits >> 15;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double magnitude = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    magnitude = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
  return sign != 0 ? -magnitude : magnitude;
}

struct Format {
  int exponent_bits, mantissa_bits;
};
template <class T>
constexpr Format kFormat = std::is_same_v<T, bf16> ? Format{8, 7} : Format{5, 10};

template <class T>
T from_bits(uint32_t bits) {
  T value;
  value.bits = static_cast<uint16_t>(bits);
  return value;
}

template <class T>
double value_of_bits(uint32_t bits) {
  return value_from_fields(static_cast<uint16_t>(bits), kFormat<T>.exponent_bits, kFormat<T>.mantissa_bits);
}

template <class T>
class HalfTypes : public ::testing::Test {};
using Halves = ::testing::Types<bf16, f16>;
TYPED_TEST_SUITE(HalfTypes, Halves);

TYPED_TEST(HalfTypes, EveryBitPatternReadsAsDefinedAndReturns) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double truth = value_of_bits<TypeParam>(bits);
    const auto read = static_cast<float>(from_bits<TypeParam>(bits));
    if (std::isnan(truth)) {
      EXPECT_TRUE(std::isnan(read)) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(read)))) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(read), truth) << bits;
      ASSERT_EQ(TypeParam(read).bits, bits);
    }
  }
}

TYPED_TEST(HalfTypes, RoundsToNearestAndTiesToEven) {
  const uint32_t infinity = kFormat<TypeParam>.mantissa_bits == 7 ? 0x7f80 : 0x7c00;
  for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    const double low = value_of_bits<TypeParam>(bits);
    const double high = value_of_bits<TypeParam>(bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(TypeParam(middle).bits, even) << "between " << low << " and " << high;
    ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0F)).bits, bits);
    ASSERT_EQ(TypeParam(std::nextafter(middle, INFINITY)).bits, bits + 1);
    ASSERT_EQ(TypeParam(-middle).bits, even | 0x8000U);
  }
}

TYPED_TEST(HalfTypes, LargeValuesBecomeInfinite) {
  const uint32_t infinity = kFormat<TypeParam>.mantissa_bits == 7 ? 0x7f80 : 0x7c00;
  const double top = value_of_bits<TypeParam>(infinity - 1);
  const double step = top - value_of_bits<TypeParam>(infinity - 2);
  const auto limit = static_cast<float>(top + step / 2);  // the tie rounds to even, which is infinity
  EXPECT_EQ(TypeParam(limit).bits, infinity);
  EXPECT_EQ(TypeParam(std::nextafter(limit, 0.0F)).bits, infinity - 1);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::max()).bits, infinity);
  EXPECT_EQ(TypeParam(INFINITY).bits, infinity);
  EXPECT_EQ(TypeParam(-INFINITY).bits, infinity | 0x8000U);
}

TYPED_TEST(HalfTypes, TinyValuesAndZerosKeepTheirSign) {
  EXPECT_EQ(TypeParam(0.0F).bits, 0);
  EXPECT_EQ(TypeParam(-0.0F).bits, 0x8000);
  EXPECT_EQ(TypeParam(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
}

/// Vector loads and stores convert every value as the scalar conversions do, at any position in the vector.
TYPED_TEST(HalfTypes, VectorsConvertAsScalarsDo) {
  namespace hn = hwy::HWY_NAMESPACE;
  using namespace lamina::HWY_NAMESPACE;  // NOLINT: the vector helpers of this target
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  std::vector<TypeParam> halves(65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) halves[bits] = from_bits<TypeParam>(bits);
  std::vector<float> floats(halves.size());
  for (size_t i = 0; i < halves.size(); i += lanes) hn::StoreU(load(d, halves.data() + i), d, floats.data() + i);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto scalar = static_cast<float>(halves[bits]);
    ASSERT_TRUE(scalar == floats[bits] || (std::isnan(scalar) && std::isnan(floats[bits]))) << bits;
  }
  std::mt19937_64 random(7);
  for (float& value : floats) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (size_t i = 0; i < halves.size(); i += lanes) store(d, hn::LoadU(d, floats.data() + i), halves.data() + i);
  for (size_t i = 0; i < halves.size(); ++i) {
    const TypeParam scalar(floats[i]);
    ASSERT_TRUE(scalar.bits == halves[i].bits || (std::isnan(floats[i]) && std::isnan(static_cast<float>(halves[i]))))
        << floats[i];
  }
}

TEST(dtype, NamesAndSizes) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
    visit_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      EXPECT_EQ(size_of(dtype), sizeof(T));
      EXPECT_EQ(dtype_of<T>(), dtype);
    });
  }
  EXPECT_FALSE(dtype_from_name("f8"));
  EXPECT_FALSE(is_floating(DType::i64));
  EXPECT_TRUE(is_floating(DType::f16));
  EXPECT_EQ(accumulation_type(DType::bf16), DType::f32);
  EXPECT_EQ(accumulation_type(DType::f64), DType::f64);
}

TEST(dtype, DoubleGoesThroughFloat) {
  EXPECT_EQ(convert<bf16>(1.0 / 3).bits, bf16(static_cast<float>(1.0 / 3)).bits);
  EXPECT_EQ(convert<double>(f16(0.5F)), 0.5);
  EXPECT_EQ(convert<int64_t>(bf16(3.0F)), 3);
}

TEST(dtype, NearNames) {
  EXPECT_TRUE(is_near("swigl", "swiglu"));
  EXPECT_TRUE(is_near("swiglu", "swiglu"));
  EXPECT_FALSE(is_near("relu", "layer_norm"));
}

}  // namespace
}  // namespace lamina
