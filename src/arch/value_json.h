#pragma once

#include <nlohmann/json.hpp>

#include "lamina/arch/json.h"

namespace lamina::arch {

/// JSON of a value of any type in the spec. null for an unset option.
template <class T>
Json value_to_json(const T& value, Defaults defaults);

template <class T>
void add_fields(const T& value, Defaults defaults, Json& object) {
  Json initial = Json::object();
  if (defaults == Defaults::omit) {
    const T fresh{};
    T::visit_fields(fresh, [&]<class F>(std::string_view key, const F& field, std::string_view, Limits = {}) {
      initial[std::string(key)] = value_to_json(field, defaults);
    });
  }
  T::visit_fields(value, [&]<class F>(std::string_view key, const F& field, std::string_view, Limits = {}) {
    Json written = value_to_json(field, defaults);
    const std::string name(key);
    if (written.is_null() || (defaults == Defaults::omit && written == initial[name])) return;
    object[name] = std::move(written);
  });
}

template <class T>
Json option_to_json(const T& value, Defaults defaults) {
  Json object = {{"kind", std::string(T::kKind)}};
  add_fields(value, defaults, object);
  if (defaults == Defaults::omit && object.size() == 1) return std::string(T::kKind);
  return object;
}

template <class T>
Json struct_to_json(const T& value, Defaults defaults) {
  if constexpr (AllOrNone<T>) {
    T all{};
    T::visit_fields(all, [](std::string_view, bool& field, std::string_view) { field = true; });
    if (value == all) return true;
    if (value == T{}) return false;
  }
  Json object = Json::object();
  add_fields(value, defaults, object);
  return object;
}

template <class T>
Json value_to_json(const T& value, Defaults defaults) {
  if constexpr (Enumeration<T>) {
    return std::string(names_of(T{})[static_cast<size_t>(value)]);
  } else if constexpr (Optional<T>) {
    return value ? value_to_json(*value, defaults) : Json();
  } else if constexpr (Vector<T>) {
    Json list = Json::array();
    for (const auto& element : value) list.push_back(value_to_json(element, defaults));
    return list;
  } else if constexpr (Variant<T>) {
    return std::visit([defaults](const auto& option) { return option_to_json(option, defaults); }, value);
  } else if constexpr (HasFields<T>) {
    return struct_to_json(value, defaults);
  } else {
    return value;
  }
}

}  // namespace lamina::arch
