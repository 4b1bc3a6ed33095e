#pragma once

#include <string_view>

#include "lamina/data/dice.h"
#include "lamina/data/tasks/example.h"

namespace lamina::data {

/// . s₁ . . s₂ … | s₁ s₂ …: `items` symbols at random positions among blanks, to be repeated at the end. Distances
/// differ between rows, so the model must select by content, not by position. Longer rows have more blanks.
struct SelectiveCopy {
  static constexpr std::string_view kKind = "selective_copy";
  static constexpr std::string_view kDoc = "symbols scattered among blanks, then the symbols alone (arXiv:2312.00752)";
  int64_t items = 8;
  int64_t symbols = 16;
  static void visit_fields(auto& self, auto&& field) {
    field("items", self.items, "symbols to hold");
    field("symbols", self.symbols, "different symbols");
  }
  bool operator==(const SelectiveCopy&) const = default;

  void check() const;
  int64_t vocab_size() const;
  int64_t answers() const;
  int64_t shortest() const;
  Example make(Dice& dice, int64_t length) const;
  int64_t source_length(int64_t length) const { return length - items; }
  std::string spell(int64_t token) const;
};

}  // namespace lamina::data
