#pragma once

#include <optional>

#include "lamina/text/template/value.h"

namespace lamina::text::jinja {

struct For;
struct Scope;

/// The variable `loop` of a for loop. Its items are released when the loop ends, because `changed(loop)` could
/// otherwise keep it alive forever.
struct Loop {
  std::vector<Value> items;
  size_t index0 = 0;
  size_t length = 0;
  size_t depth0 = 0;
  std::optional<Value> last_changed;
  const For* recursive = nullptr;  ///< the statement that loop(items) runs again
  Scope* outer = nullptr;

  /// loop.NAME. Empty if there is no such attribute, or if it is a method.
  std::optional<Value> attribute(std::string_view name) const;
  Value cycle(const Arguments& arguments) const;
  Value changed(const Arguments& arguments);
};

}  // namespace lamina::text::jinja
