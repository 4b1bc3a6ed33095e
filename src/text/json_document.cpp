#include "lamina/text/json_document.h"

#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/base/json.h"

namespace lamina::text {

json parse_object(std::string_view text, const std::string& name) {
  json tree = parse_json<json>(text, name);
  LAMINA_CHECK(tree.is_object(), name, ": expected a JSON object");
  return tree;
}

template <class T>
T value_or(const json& object, const char* key, T fallback, const std::string& name) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  try {
    return found->get<T>();
  } catch (const json::exception&) {
    throw Error(str(name, ": \"", key, "\" is ", found->dump().substr(0, 80), ", which has the wrong type"));
  }
}
template bool value_or(const json&, const char*, bool, const std::string&);
template double value_or(const json&, const char*, double, const std::string&);
template int64_t value_or(const json&, const char*, int64_t, const std::string&);
template std::string value_or(const json&, const char*, std::string, const std::string&);

void check_keys(const json& object, std::initializer_list<const char*> known, const std::string& name) {
  for (const auto& [key, value] : object.items()) {
    const bool found = std::ranges::any_of(known, [&key = key](const char* one) { return key == one; });
    LAMINA_CHECK(found, name, ": \"", key, "\" is not supported here, and it could change the tokens");
  }
}

}  // namespace lamina::text
