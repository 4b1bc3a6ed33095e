#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lamina::serve {

/// The path in a request's target: "/path?query" or, as proxies send it, "http://host/path?query".
std::string path_of(std::string target);
/// The query in a request's target, without '?'.
std::string query_of(std::string_view target);
/// Percent-decodes; a sign that does not begin an escape stays.
std::string percent_decoded(std::string_view text);
/// The names and values of a query, decoded. "name[]", which some clients write for lists, is read as "name".
std::vector<std::pair<std::string, std::string>> query_fields(std::string_view query);
/// Whether a client's x-request-id is used: 1 to 64 letters, digits, '-', '_' or '.'.
bool is_plain_id(std::string_view id);

}  // namespace lamina::serve
