#include "lamina/serve/http/request_parts.h"

#include <algorithm>
#include <cctype>

namespace lamina::serve {

std::string path_of(std::string target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const size_t path = target.find_first_of("/?", scheme.size());
    target = path == std::string::npos || target[path] == '?' ? "/" : target.substr(path);
  }
  return target.substr(0, target.find('?'));
}

bool is_plain_id(std::string_view id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace lamina::serve
