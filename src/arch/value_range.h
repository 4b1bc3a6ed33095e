#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lamina/arch/fields.h"
#include "lamina/base/error.h"

namespace lamina::arch {

/// Checks every number against the limits of its field. Reports violations with `note`.
class RangeCheck {
 public:
  using Note = std::function<void(const std::string& path, const std::string& message)>;
  explicit RangeCheck(Note note) : outside_(std::move(note)) {}

  template <class T>
  void check(const T& value, Limits limits, const std::string& path) {
    if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
      const auto number = static_cast<double>(value);
      if (number >= limits.min && number <= limits.max) return;
      note(path, str(value, value == T{} ? " or missing" : "", ", expected ", static_cast<T>(limits.min), " to ",
                     static_cast<T>(limits.max)));
    } else if constexpr (Optional<T>) {
      if (value) check(*value, limits, path);
    } else if constexpr (Vector<T>) {
      for (size_t i = 0; i < value.size(); ++i) check(value[i], limits, str(path, "[", i, "]"));
    } else if constexpr (Variant<T>) {
      std::visit([&](const auto& option) { check(option, limits, path); }, value);
    } else if constexpr (HasFields<T>) {
      T::visit_fields(
          value, [&]<class F>(std::string_view key, const F& field, std::string_view, Limits inner = kLimitsOf<F>) {
            check(field, inner, path.empty() ? std::string(key) : str(path, ".", key));
          });
    }
  }

 private:
  /// Layers hold copies of the model's norm and position, so the same violation is reported only once.
  void note(const std::string& path, const std::string& message) {
    for (const auto& [earlier, said] : noted_) {
      if (path.ends_with("." + earlier) && message == said) return;
    }
    noted_.emplace_back(path, message);
    outside_(path, message);
  }

  Note outside_;
  std::vector<std::pair<std::string, std::string>> noted_;
};

}  // namespace lamina::arch
