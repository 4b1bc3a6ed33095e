#pragma once

#include <bit>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

namespace lamina {

/// Element types of tensors.
enum class DType : uint8_t { f32, f64, bf16, f16, i64, i32, u8 };

/// Upper half of an IEEE float. Conversion rounds to nearest, ties to even, as PyTorch does.
struct bf16 {
  uint16_t bits = 0;  ///< the upper 16 bits of the float

  bf16() = default;
  /// Rounds to nearest, ties to even.
  explicit bf16(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40U);  // keeps a NaN a NaN
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }  ///< exact
};

/// IEEE half precision; conversion rounds to nearest, ties to even.
struct f16 {
  uint16_t bits = 0;  ///< IEEE binary16

  f16() = default;
  explicit f16(float value);        ///< rounds to nearest, ties to even
  explicit operator float() const;  ///< exact
};

size_t size_of(DType dtype);                                  ///< bytes of an element
std::string_view name_of(DType dtype);                        ///< "f32", "bf16", …
std::optional<DType> dtype_from_name(std::string_view name);  ///< empty if the name is unknown
bool is_floating(DType dtype);                                ///< true for f32, f64, bf16 and f16
/// The type in which kernels accumulate: f64 for f64, f32 for the other floating types.
DType accumulation_type(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);  ///< prints name_of(dtype)

/// Whether T is an element type of tensors.
template <class T>
inline constexpr bool kIsDType =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, bf16> || std::is_same_v<T, f16> ||
    std::is_same_v<T, int64_t> || std::is_same_v<T, int32_t> || std::is_same_v<T, uint8_t>;

/// The DType of the C++ type T.
template <class T>
constexpr DType dtype_of() {
  static_assert(kIsDType<T>, "not an element type of a tensor");
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, f16>) return DType::f16;
  if constexpr (std::is_same_v<T, int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::u8;
}

/// float for f32, bf16 and f16; double for f64.
template <class T>
using Accumulate = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Converts a floating-point number to an integer: truncates toward zero, saturates at the integer's limits, maps NaN
/// to 0.
template <class To, class From>
To to_integer(From value) {
  constexpr auto kLow = static_cast<From>(std::numeric_limits<To>::min());
  constexpr auto kAbove = From{2} * static_cast<From>(To{1} << (std::numeric_limits<To>::digits - 1));
  if (!(value > kLow)) return value == value ? std::numeric_limits<To>::min() : To{0};
  return value < kAbove ? static_cast<To>(value) : std::numeric_limits<To>::max();
}

/// Converts between element types. To integers: see to_integer(). To bf16 and f16: rounds to nearest, ties to even.
template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, bf16> || std::is_same_v<From, f16>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bf16> || std::is_same_v<To, f16>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return to_integer<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

/// Carries an element type as a value, to pass it to a generic lambda.
template <class T>
struct TypeTag {
  using type = T;  ///< the element type
};

/// Calls fn(TypeTag<T>{}) for the element type named by `dtype`.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& fn) {
  switch (dtype) {
    case DType::f32: return fn(TypeTag<float>{});
    case DType::f64: return fn(TypeTag<double>{});
    case DType::bf16: return fn(TypeTag<bf16>{});
    case DType::f16: return fn(TypeTag<f16>{});
    case DType::i64: return fn(TypeTag<int64_t>{});
    case DType::i32: return fn(TypeTag<int32_t>{});
    case DType::u8: break;
  }
  return fn(TypeTag<uint8_t>{});
}

/// Like visit_dtype, but only for the four floating types. The caller checks that `dtype` is one of them.
template <class F>
decltype(auto) visit_floating(DType dtype, F&& fn) {
  switch (dtype) {
    case DType::f64: return fn(TypeTag<double>{});
    case DType::bf16: return fn(TypeTag<bf16>{});
    case DType::f16: return fn(TypeTag<f16>{});
    default: return fn(TypeTag<float>{});
  }
}

}  // namespace lamina
