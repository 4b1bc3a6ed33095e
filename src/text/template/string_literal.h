#pragma once

#include <string>
#include <string_view>

namespace lamina::text::jinja {

/// The content of a string literal, as Python's unicode-escape codec decodes it. Throws Failure on a bad escape.
std::string unescape_literal(std::string_view literal);

}  // namespace lamina::text::jinja
