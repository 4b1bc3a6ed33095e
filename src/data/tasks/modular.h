#pragma once

#include <string_view>

#include "lamina/data/dice.h"
#include "lamina/data/tasks/example.h"

namespace lamina::data {

/// 3 + 4 - 1 = 1: modular arithmetic, one expression after another. Results are scored. An expression takes at most
/// 1/`expressions` of the row, so longer rows have longer expressions. The number of terms is random, from 2 to the
/// maximum that fits.
struct Modular {
  static constexpr std::string_view kKind = "modular";
  static constexpr std::string_view kDoc = "sums and differences of digits modulo a number (arXiv:2207.02098)";
  int64_t modulus = 5;
  int64_t expressions = 4;
  static void visit_fields(auto& self, auto&& field) {
    field("modulus", self.modulus, "digits and results are below this");
    field("expressions", self.expressions, "number of the longest expressions that fit into a row");
  }
  bool operator==(const Modular&) const = default;

  void check() const;
  int64_t vocab_size() const;
  int64_t answers() const;
  int64_t shortest() const;
  Example make(Dice& dice, int64_t length) const;
  std::string spell(int64_t token) const;
};

}  // namespace lamina::data
