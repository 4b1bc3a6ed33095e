#pragma once

#include <string>
#include <string_view>

#include "lamina/text/grammar/grammar.h"
#include "lamina/text/grammar/program.h"

namespace lamina::text::grammar {

inline constexpr size_t kMaxSchemaBytes = size_t{1} << 20;

Program compile_json_schema(std::string_view schema, const JsonOptions& options, const std::string& name);

/// The regular expression of a `format`; null if the format is not supported. Every text that it matches has the
/// format, but unusual spellings (leap seconds, quoted local parts of addresses) do not match.
const char* format_pattern(std::string_view format);
/// The supported formats, separated by commas.
std::string format_names();

}  // namespace lamina::text::grammar
