#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lamina/base/json.h"

namespace lamina::lab {

using Json = nlohmann::ordered_json;

/// Returns null if the value is missing or not finite, because JSON cannot represent that.
inline Json or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}
inline Json list_json(const std::vector<std::optional<double>>& values) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(or_null(value));
  return list;
}
inline Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace lamina::lab
