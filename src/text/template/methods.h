#pragma once

#include <string_view>
#include <unordered_map>

#include "lamina/text/template/value.h"

namespace lamina::text::jinja {

using Method = Value (*)(Interpreter&, const Value& self, const Arguments& arguments);
using MethodTable = std::unordered_map<std::string_view, Method>;

const MethodTable& string_methods();
bool is_unsupported_string_method(std::string_view name);

}  // namespace lamina::text::jinja
