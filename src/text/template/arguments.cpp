#include "lamina/text/template/arguments.h"

#include <algorithm>

#include "lamina/base/error.h"

namespace lamina::text::jinja {

BoundArguments::BoundArguments(std::string function, const Arguments& given,
                               std::initializer_list<const char*> parameters)
    : function_(std::move(function)), names_(parameters.begin(), parameters.end()), values_(parameters.size()) {
  if (given.positional.size() > names_.size()) {
    throw Failure(str(function_, ": takes at most ", names_.size(), " arguments, got ", given.positional.size()));
  }
  for (size_t i = 0; i < given.positional.size(); ++i) values_[i] = &given.positional[i];
  for (const auto& [name, value] : given.named) {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) throw Failure(str(function_, ": has no argument '", name, "'"));
    const Value*& slot = values_[static_cast<size_t>(found - names_.begin())];
    if (slot != nullptr) throw Failure(str(function_, ": the argument '", name, "' is given twice"));
    slot = &value;
  }
}

const Value& BoundArguments::value(size_t parameter) const {
  if (!has(parameter)) throw Failure(str(function_, ": the argument '", names_[parameter], "' is missing"));
  return *values_[parameter];
}

const std::string& BoundArguments::text(size_t parameter) const {
  const Value& given = value(parameter);
  if (given.is_undefined()) given.fail_undefined();
  if (!given.is_string()) {
    throw Failure(str(function_, ": the argument '", names_[parameter], "' must be a str, not ", given.type_name()));
  }
  return given.text();
}

int64_t BoundArguments::integer(size_t parameter) const {
  const Value& given = value(parameter);
  if (given.is_undefined()) given.fail_undefined();
  if (!given.is_integer() && !given.is_bool()) {
    throw Failure(str(function_, ": the argument '", names_[parameter], "' must be an int, not ", given.type_name()));
  }
  return given.integer();
}

}  // namespace lamina::text::jinja
