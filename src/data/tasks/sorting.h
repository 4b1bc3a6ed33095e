#pragma once

#include <string_view>

#include "lamina/data/dice.h"
#include "lamina/data/tasks/example.h"

namespace lamina::data {

/// s₁ … sₙ | the same symbols in ascending order, with n half of the row length. The second half is scored. Symbols may
/// repeat. Answers are not equally likely, because the first ones tend to be small.
struct Sorting {
  static constexpr std::string_view kKind = "sorting";
  static constexpr std::string_view kDoc = "a row of symbols, then the same in order";
  int64_t symbols = 32;
  static void visit_fields(auto& self, auto&& field) { field("symbols", self.symbols, "different symbols"); }
  bool operator==(const Sorting&) const = default;

  void check() const;
  int64_t vocab_size() const;
  int64_t answers() const;
  int64_t shortest() const;
  Example make(Dice& dice, int64_t length) const;
  int64_t source_length(int64_t length) const { return length / 2; }
  std::string spell(int64_t token) const;
};

}  // namespace lamina::data
