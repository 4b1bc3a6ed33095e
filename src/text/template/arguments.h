#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "lamina/text/template/value.h"

namespace lamina::text::jinja {

/// Assigns the arguments of a call to the parameters of a built-in function, by Python's rules. Too many, unknown and
/// repeated arguments are a Failure.
class BoundArguments {
 public:
  BoundArguments(std::string function, const Arguments& given, std::initializer_list<const char*> parameters);

  bool has(size_t parameter) const { return values_[parameter] != nullptr; }
  const Value& value(size_t parameter) const;  ///< throws Failure if it is missing
  Value value_or(size_t parameter, Value fallback) const { return has(parameter) ? value(parameter) : fallback; }
  const std::string& text(size_t parameter) const;
  int64_t integer(size_t parameter) const;
  int64_t integer_or(size_t parameter, int64_t fallback) const {
    return has(parameter) ? integer(parameter) : fallback;
  }
  bool truth_or(size_t parameter, bool fallback) const { return has(parameter) ? value(parameter).truth() : fallback; }

 private:
  std::string function_;
  std::vector<std::string> names_;
  std::vector<const Value*> values_;  ///< null if not given; points to the arguments of the call
};

}  // namespace lamina::text::jinja
