#include "lamina/serve/api/fields.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lamina/base/suggest.h"
#include "lamina/text/utf8.h"

namespace lamina::serve {

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void append_quoted(std::string& out, std::string_view text) {
  if (text::valid_prefix(text) != text.size()) {
    out += dump(text);
    return;
  }
  out += '"';
  size_t plain = 0;  // begin of the bytes that need no escape
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text, plain, i - plain);
    plain = i + 1;
    const char* letters = "btnvfr";  // of the bytes 8 to 13
    out += '\\';
    if (byte >= 0x20) {
      out += text[i];
    } else if (byte >= 8 && byte <= 13 && byte != '\v') {
      out += letters[byte - 8];
    } else {
      char code[8];
      std::snprintf(code, sizeof code, "u%04x", byte);
      out += code;
    }
  }
  out.append(text, plain).append(1, '"');
}

std::string brief(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  const std::string text = dump(value);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_object()) {
    throw ApiError(400, str(path_.empty() ? "the body" : path_, " is ", brief(object), "; expected a JSON object"),
                   path_);
  }
}

void Fields::fail(const std::string& name, const std::string& message) const {
  throw ApiError(400, str(path_of(name), ": ", message), path_of(name));
}

const Json* Fields::find(const std::string& name) {
  known_.push_back(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

int64_t Fields::integer(const std::string& name, int64_t fallback, int64_t low, int64_t high) {
  const Json* value = find(name);
  if (!value) return fallback;
  const bool whole = value->is_number_integer() && !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
  if (!whole || value->get<int64_t>() < low || value->get<int64_t>() > high) {
    fail(name, str(brief(*value), "; expected a whole number from ", low, " to ", high));
  }
  return value->get<int64_t>();
}

double Fields::number(const std::string& name, double fallback, double low, double high) {
  const Json* value = find(name);
  if (!value) return fallback;
  if (!value->is_number() || !(value->get<double>() >= low && value->get<double>() <= high)) {
    fail(name, str(brief(*value), "; expected a number from ", low, " to ", high));
  }
  return value->get<double>();
}

bool Fields::flag(const std::string& name, bool fallback) {
  const Json* value = find(name);
  if (!value) return fallback;
  if (!value->is_boolean()) fail(name, str(brief(*value), "; expected true or false"));
  return value->get<bool>();
}

std::string Fields::text(const std::string& name, const std::string& fallback) {
  const Json* value = find(name);
  if (!value) return fallback;
  if (!value->is_string()) fail(name, str(brief(*value), "; expected a string"));
  return value->get<std::string>();
}

std::vector<std::string> Fields::texts(const std::string& name, size_t limit) {
  const Json* value = find(name);
  if (!value) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array() || value->size() > limit ||
      !std::all_of(value->begin(), value->end(), [](const Json& item) { return item.is_string(); })) {
    fail(name, str(brief(*value), "; expected a string or a list of at most ", limit, " strings"));
  }
  return value->get<std::vector<std::string>>();
}

std::vector<int64_t> Fields::integers(const std::string& name, size_t limit) {
  const Json* value = find(name);
  if (!value) return {};
  if (!value->is_array() || value->size() > limit) {
    fail(name, str(brief(*value), "; expected a list of at most ", limit, " whole numbers"));
  }
  std::vector<int64_t> numbers;
  for (const Json& item : *value) {
    if (!item.is_number_integer()) fail(name, str("holds ", brief(item), "; expected whole numbers"));
    numbers.push_back(item.get<int64_t>());
  }
  return numbers;
}

void Fields::ignore(std::initializer_list<const char*> names) {
  known_.insert(known_.end(), names.begin(), names.end());
}

void Fields::refuse(const std::string& name, const std::string& why) {
  if (has(name)) fail(name, why);
}

void Fields::finish() const {
  for (const auto& [name, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string hint = did_you_mean(name.substr(0, 64), known_);
    fail(name.substr(0, 64), str("unknown field", hint.empty() ? "" : "; ", hint));
  }
}

}  // namespace lamina::serve
