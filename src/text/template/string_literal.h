#pragma once

#include <string>
#include <string_view>

namespace lamina::text::jinja {

/// Decodes the content of a string literal, like Python's unicode-escape codec. Throws Failure for an invalid escape.
std::string unescape_literal(std::string_view literal);

}  // namespace lamina::text::jinja
