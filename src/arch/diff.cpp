#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"

namespace lamina::arch {
namespace {

std::string shown(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void compare(const std::string& path, const Json& a, const Json& b, std::vector<Difference>& rows) {
  if (a == b) return;
  if (a.is_object() && b.is_object()) {
    const auto member = [&path](const std::string& key) { return path.empty() ? key : path + "." + key; };
    for (const auto& [key, value] : a.items()) {
      if (b.contains(key)) {
        compare(member(key), value, b[key], rows);
      } else {
        rows.push_back({member(key), shown(value), ""});
      }
    }
    for (const auto& [key, value] : b.items()) {
      if (!a.contains(key)) rows.push_back({member(key), "", shown(value)});
    }
  } else if (a.is_array() && b.is_array()) {
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      const std::string element = str(path, "[", i, "]");
      if (i < a.size() && i < b.size()) {
        compare(element, a[i], b[i], rows);
      } else {
        rows.push_back({element, i < a.size() ? shown(a[i]) : "", i < b.size() ? shown(b[i]) : ""});
      }
    }
  } else {
    rows.push_back({path, shown(a), shown(b)});
  }
}

}  // namespace

std::vector<Difference> diff(const ArchSpec& a, const ArchSpec& b) {
  std::vector<Difference> rows;
  compare("", spec_to_json(a, Defaults::write), spec_to_json(b, Defaults::write), rows);
  return rows;
}

}  // namespace lamina::arch
