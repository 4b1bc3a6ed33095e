#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace lamina::arch {

/// Valid range of a number. The rule `range` reports violations.
struct Limits {
  double min;
  double max;
};
/// Small enough that the product of two sizes and a small factor does not overflow int64.
inline constexpr Limits kSize{1, 1073741824};
inline constexpr Limits kCount{0, 1073741824};
inline constexpr Limits kPositive{1e-30, 1e30};
inline constexpr Limits kNotNegative{0, 1e30};
inline constexpr Limits kAnyNumber{-1e30, 1e30};

/// Default limits of a field by its type: kSize for integers, kPositive for other numbers.
template <class T>
inline constexpr Limits kLimitsOf = kPositive;
template <>
inline constexpr Limits kLimitsOf<int64_t> = kSize;
template <>
inline constexpr Limits kLimitsOf<std::optional<int64_t>> = kSize;

/// Every struct of an architecture file declares each of its fields once, in file order:
///   static void visit_fields(auto& self, auto&& field) {
///     field("theta", self.theta, "base of the rotation angles");          // kLimitsOf its type
///     field("offset", self.offset, "rows skipped", kCount);
///   }
/// Reading, writing, the schema, the documentation and the range rule are visitors of these fields.
struct NoVisitor {
  template <class T>
  void operator()(std::string_view, T&, std::string_view, Limits = kLimitsOf<std::remove_const_t<T>>) const {}
};
template <class T>
concept HasFields = requires(T& value, NoVisitor field) {
  T::visit_fields(value, field);
};

/// A struct with only boolean fields. Files may write a single true or false for all of them.
template <class T>
concept AllOrNone = HasFields<T> && requires {
  T::kAllOrNone;
};

/// An enumeration with a function names_of(E), which returns its enumerators' names in order.
template <class T>
concept Enumeration = std::is_enum_v<T>;

template <class T>
struct IsVariant : std::false_type {};
template <class... T>
struct IsVariant<std::variant<T...>> : std::true_type {};
/// A std::variant of structs, each with kKind (its name in files) and kDoc.
template <class T>
concept Variant = IsVariant<T>::value;

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
concept Optional = IsOptional<T>::value;

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
concept Vector = IsVector<T>::value;

template <class T>
struct TypeOf {
  using type = T;
};
/// Calls fn(TypeOf<Alternative>{}) for each alternative of the variant V.
template <class V, class F>
void for_each_alternative(F&& fn) {
  [&]<class... T>(std::type_identity<std::variant<T...>>) { (fn(TypeOf<T>{}), ...); }(std::type_identity<V>{});
}

/// The kKind of the alternative that a variant holds.
template <Variant V>
std::string_view kind_of(const V& value) {
  return std::visit([](const auto& option) { return std::remove_cvref_t<decltype(option)>::kKind; }, value);
}

}  // namespace lamina::arch
