#pragma once

#include <string_view>

#include "lamina/data/dice.h"
#include "lamina/data/tasks/example.h"

namespace lamina::data {

/// k₁ v₁ k₂ v₂ … . . k₂ v₂ . k₁ v₁ …: `pairs` random key-value pairs, then `questions` of their keys at random
/// positions among fillers. Each is followed by its value, which is scored. No key is asked a second time before every
/// key was asked once.
struct Mqar {
  static constexpr std::string_view kKind = "mqar";
  static constexpr std::string_view kDoc =
      "multi-query associative recall: pairs of key and value, then keys alone (arXiv:2312.04927)";
  int64_t pairs = 8;
  int64_t questions = 8;
  int64_t keys = 64;
  int64_t values = 64;
  static void visit_fields(auto& self, auto&& field) {
    field("pairs", self.pairs, "pairs to hold");
    field("questions", self.questions, "keys asked for");
    field("keys", self.keys, "different keys, at least as many as pairs");
    field("values", self.values, "different values");
  }
  bool operator==(const Mqar&) const = default;

  void check() const;
  int64_t vocab_size() const;
  int64_t answers() const;
  int64_t shortest() const;
  Example make(Dice& dice, int64_t length) const;
  std::string spell(int64_t token) const;
};

}  // namespace lamina::data
