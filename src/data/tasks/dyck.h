#pragma once

#include <string_view>

#include "lamina/data/dice.h"
#include "lamina/data/tasks/example.h"

namespace lamina::data {

/// ( [ ] { ( ) } …: balanced brackets. A random walk opens or closes a bracket with equal probability, never deeper
/// than `depth`. Closing brackets are scored: their kind is determined by the stack of open brackets. Longer rows are
/// longer walks.
struct Dyck {
  static constexpr std::string_view kKind = "dyck";
  static constexpr std::string_view kDoc = "which bracket closes: nested brackets of several kinds (arXiv:2010.07515)";
  int64_t kinds = 4;
  int64_t depth = 8;
  static void visit_fields(auto& self, auto&& field) {
    field("kinds", self.kinds, "kinds of brackets");
    field("depth", self.depth, "largest number of open brackets");
  }
  bool operator==(const Dyck&) const = default;

  void check() const;
  int64_t vocab_size() const;
  int64_t answers() const;
  int64_t shortest() const;
  Example make(Dice& dice, int64_t length) const;
  std::string spell(int64_t token) const;
};

}  // namespace lamina::data
