#pragma once

#include <nlohmann/json.hpp>

#include "lamina/arch/json.h"
#include "lamina/arch/schema.h"
#include "lamina/arch/value_json.h"

namespace lamina::arch {

/// The schema of T, derived from its visit_fields.
template <class T>
SchemaNode describe();

template <class T>
SchemaOption describe_fields() {
  SchemaOption option;
  T fresh{};
  T::visit_fields(fresh, [&]<class F>(std::string_view key, F& field, std::string_view doc, Limits = {}) {
    const Json initial = value_to_json(field, Defaults::omit);
    option.fields.push_back(
        {std::string(key), std::string(doc), initial.is_null() ? "" : initial.dump(), describe<F>()});
  });
  return option;
}

template <Variant T>
SchemaNode describe_variant() {
  SchemaNode node{SchemaNode::Type::variant};
  for_each_alternative<T>([&]<class A>(TypeOf<A>) {
    SchemaOption option = describe_fields<A>();
    option.kind = A::kKind;
    option.doc = A::kDoc;
    node.options.push_back(std::move(option));
  });
  return node;
}

template <class T>
SchemaNode describe() {
  using Type = SchemaNode::Type;
  if constexpr (Optional<T>) {
    return describe<typename T::value_type>();
  } else if constexpr (Enumeration<T>) {
    SchemaNode node{Type::choice};
    for (const std::string_view name : names_of(T{})) node.names.emplace_back(name);
    return node;
  } else if constexpr (Vector<T>) {
    SchemaNode node{Type::list};
    node.element.push_back(describe<typename T::value_type>());
    return node;
  } else if constexpr (Variant<T>) {
    return describe_variant<T>();
  } else if constexpr (HasFields<T>) {
    SchemaNode node{Type::structure};
    node.switches = AllOrNone<T>;
    node.options.push_back(describe_fields<T>());
    return node;
  } else if constexpr (std::is_same_v<T, bool>) {
    return {Type::boolean};
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return {Type::integer};
  } else if constexpr (std::is_same_v<T, double>) {
    return {Type::number};
  } else {
    return {Type::text};
  }
}

}  // namespace lamina::arch
