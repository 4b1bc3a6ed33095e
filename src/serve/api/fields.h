#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lamina/base/error.h"

namespace lamina::serve {

using Json = nlohmann::ordered_json;

/// A request that is answered with an error in OpenAI's form.
class ApiError : public Error {
 public:
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : Error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string param_, code_;
};

/// Reads the fields of a JSON object in a request. null counts as missing, because openai clients send it. A field of
/// the wrong type or range is an ApiError 400 that names the field. finish() reports fields that no call read.
class Fields {
 public:
  /// `path` is the object's place in the body, for example "messages[0]"; empty for the body itself. The object must
  /// outlive this reader.
  explicit Fields(const Json& object, std::string path = "");

  /// The value, or nullptr if it is missing or null.
  const Json* find(const std::string& name);
  bool has(const std::string& name) { return find(name) != nullptr; }
  int64_t integer(const std::string& name, int64_t fallback, int64_t low, int64_t high);
  double number(const std::string& name, double fallback, double low, double high);
  bool flag(const std::string& name, bool fallback);
  std::string text(const std::string& name, const std::string& fallback = "");
  /// A string or a list of at most `limit` strings.
  std::vector<std::string> texts(const std::string& name, size_t limit);
  /// A list of at most `limit` whole numbers.
  std::vector<int64_t> integers(const std::string& name, size_t limit);
  /// Accepts these fields; they have no effect.
  void ignore(std::initializer_list<const char*> names);
  /// Throws ApiError if the field is given; `why` says what to do instead.
  void refuse(const std::string& name, const std::string& why);
  void finish() const;

  std::string path_of(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }
  [[noreturn]] void fail(const std::string& name, const std::string& message) const;

 private:
  const Json& object_;
  std::string path_;
  std::vector<std::string> known_;
};

/// Serializes to JSON text. Invalid UTF-8 becomes U+FFFD.
std::string dump(const Json& json);
/// Appends `text` as dump() writes it. A stream does this for every token, so it builds no JSON tree.
void append_quoted(std::string& out, std::string_view text);
/// The beginning of a value as text, for error messages.
std::string brief(const Json& value);

}  // namespace lamina::serve
