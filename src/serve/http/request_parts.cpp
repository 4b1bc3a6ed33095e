#include "lamina/serve/http/request_parts.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace lamina::serve {

std::string path_of(std::string target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const size_t path = target.find_first_of("/?", scheme.size());
    target = path == std::string::npos || target[path] == '?' ? "/" : target.substr(path);
  }
  return target.substr(0, target.find('?'));
}

std::string query_of(std::string_view target) {
  const size_t mark = target.find('?');
  if (mark == std::string_view::npos) return {};
  const std::string_view query = target.substr(mark + 1);
  return std::string(query.substr(0, query.find('#')));
}

std::string percent_decoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    result += escape ? static_cast<char>(byte) : text[i];
    if (escape) i += 2;
  }
  return result;
}

std::vector<std::pair<std::string, std::string>> query_fields(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> fields;
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), field.size() + 1));
    const size_t equal = field.find('=');
    std::string name = percent_decoded(field.substr(0, equal));
    if (name.ends_with("[]")) name.resize(name.size() - 2);
    const std::string_view value = equal == std::string_view::npos ? std::string_view() : field.substr(equal + 1);
    if (!name.empty()) fields.emplace_back(std::move(name), percent_decoded(value));
  }
  return fields;
}

bool is_plain_id(std::string_view id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace lamina::serve
