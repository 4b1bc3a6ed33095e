#pragma once

#include <string>
#include <string_view>

namespace lamina::serve {

/// The path in a request's target: "/path?query" or, as proxies send it, "http://host/path?query".
std::string path_of(std::string target);
/// Whether a client's x-request-id is used: 1 to 64 letters, digits, '-', '_' or '.'.
bool is_plain_id(std::string_view id);

}  // namespace lamina::serve
