#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lamina/arch/fields.h"
#include "lamina/arch/json.h"

namespace lamina::arch {
namespace detail {

inline constexpr size_t kMaxProblems = 100;
inline constexpr size_t kMaxElements = 10000;

inline std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

inline std::string shown(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

inline std::string below(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

}  // namespace detail

/// Reads a value of any type with visit_fields. Never throws because of file contents: it reports the problem and
/// continues.
class ValueReader {
 public:
  explicit ValueReader(std::vector<Problem>& problems) : problems_(problems) {}

  void read(const Json& json, bool& value, const std::string& path) {
    if (!json.is_boolean()) return wrong(json, path, "true or false");
    value = json.get<bool>();
  }

  void read(const Json& json, int64_t& value, const std::string& path) {
    if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) {
      return wrong(json, path, "a whole number below 2^63");
    }
    if (json.is_number_integer()) {
      value = json.get<int64_t>();
      return;
    }
    const double number = json.is_number() ? json.get<double>() : std::nan("");
    if (!(std::abs(number) <= 9007199254740992.0) || number != std::floor(number)) {
      return wrong(json, path, "a whole number");
    }
    value = static_cast<int64_t>(number);
  }

  void read(const Json& json, double& value, const std::string& path) {
    if (!json.is_number()) return wrong(json, path, "a number");
    value = json.get<double>();
  }

  void read(const Json& json, std::string& value, const std::string& path) {
    if (!json.is_string()) return wrong(json, path, "a string");
    value = json.get<std::string>();
  }

  template <Enumeration T>
  void read(const Json& json, T& value, const std::string& path) {
    constexpr auto names = names_of(T{});
    const std::vector<std::string> known(names.begin(), names.end());
    if (!json.is_string()) return wrong(json, path, "one of " + detail::join(known));
    const auto given = json.get<std::string>();
    for (size_t i = 0; i < known.size(); ++i) {
      if (known[i] == given) {
        value = static_cast<T>(i);
        return;
      }
    }
    unknown(path, "\"" + given + "\" is not known", given, known, "one of ");
  }

  template <Optional T>
  void read(const Json& json, T& value, const std::string& path) {
    value.reset();
    if (json.is_null()) return;
    typename T::value_type inner{};
    read(json, inner, path);
    value = std::move(inner);
  }

  template <Vector T>
  void read(const Json& json, T& value, const std::string& path) {
    if (!json.is_array()) return wrong(json, path, "a list [...]");
    if (json.size() > detail::kMaxElements) {
      return note(path, str("a list of ", json.size(), " elements; at most ", detail::kMaxElements, " are expected"),
                  "use repeat for equal layers");
    }
    value.clear();
    for (size_t i = 0; i < json.size(); ++i) {
      value.emplace_back();
      read(json[i], value.back(), str(path, "[", i, "]"));
    }
  }

  template <HasFields T>
  void read(const Json& json, T& value, const std::string& path) {
    if constexpr (AllOrNone<T>) {
      if (json.is_boolean()) {
        T::visit_fields(value, [&](std::string_view, bool& field, std::string_view) { field = json.get<bool>(); });
        return;
      }
    }
    if (!json.is_object())
      return wrong(json, path, AllOrNone<T> ? "true, false or an object {...}" : "an object {...}");
    read_fields(json, value, path, /*with_kind=*/false);
  }

  template <Variant T>
  void read(const Json& json, T& value, const std::string& path) {
    std::vector<std::string> known;
    for_each_alternative<T>([&]<class A>(TypeOf<A>) { known.emplace_back(A::kKind); });
    const bool has_kind = json.is_object() && json.contains("kind") && json["kind"].is_string();
    if (!json.is_string() && !has_kind) {
      return wrong(json, path, "{\"kind\": ..., ...} or the kind alone, one of " + detail::join(known));
    }
    const auto kind = json.is_string() ? json.get<std::string>() : json["kind"].get<std::string>();
    bool found = false;
    for_each_alternative<T>([&]<class A>(TypeOf<A>) {
      if (kind != A::kKind) return;
      found = true;
      A option{};
      if (json.is_object()) read_fields(json, option, path, /*with_kind=*/true);
      value = std::move(option);
    });
    if (!found) unknown(detail::below(path, "kind"), "\"" + kind + "\" is not known", kind, known, "one of ");
  }

 private:
  template <class T>
  void read_fields(const Json& json, T& value, const std::string& path, bool with_kind) {
    std::vector<std::string> known;
    if (with_kind) known.emplace_back("kind");
    T::visit_fields(value, [&]<class F>(std::string_view key, F& field, std::string_view, Limits = {}) {
      known.emplace_back(key);
      const auto found = json.find(std::string(key));
      if (found != json.end()) read(*found, field, detail::below(path, key));
    });
    for (const auto& [key, member] : json.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        unknown(detail::below(path, key), "unknown key", key, known, "keys here: ");
      }
    }
  }

  void note(const std::string& path, std::string message, std::string hint) {
    if (problems_.size() < detail::kMaxProblems)
      problems_.push_back({"read", path, std::move(message), std::move(hint)});
  }
  void wrong(const Json& json, const std::string& path, const std::string& expected) {
    note(path, "given " + detail::shown(json) + ", expected " + expected, "");
  }
  void unknown(const std::string& path, const std::string& message, const std::string& given,
               const std::vector<std::string>& known, const std::string& list) {
    const std::string nearest = nearest_of(given.substr(0, 64), known);
    note(path, message, nearest.empty() ? list + detail::join(known) : "did you mean " + nearest + "?");
  }

  std::vector<Problem>& problems_;
};

}  // namespace lamina::arch
