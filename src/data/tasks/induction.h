#pragma once

#include <string_view>

#include "lamina/data/dice.h"
#include "lamina/data/tasks/example.h"

namespace lamina::data {

/// a f ! c b … ! c: a trigger (!) at random positions among random symbols. The symbol after it is always the same
/// within a row. It is scored after every trigger except the first, and the row ends with it. Longer rows have more
/// fillers.
struct Induction {
  static constexpr std::string_view kKind = "induction";
  static constexpr std::string_view kDoc =
      "the symbol that followed the first occurrence of the trigger (arXiv:2212.14052)";
  int64_t symbols = 16;
  int64_t questions = 1;
  static void visit_fields(auto& self, auto&& field) {
    field("symbols", self.symbols, "different symbols");
    field("questions", self.questions, "number of further occurrences of the trigger");
  }
  bool operator==(const Induction&) const = default;

  void check() const;
  int64_t vocab_size() const;
  int64_t answers() const;
  int64_t shortest() const;
  Example make(Dice& dice, int64_t length) const;
  std::string spell(int64_t token) const;
};

}  // namespace lamina::data
