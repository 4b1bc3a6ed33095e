#pragma once

#include <string_view>

#include "lamina/data/dice.h"
#include "lamina/data/tasks/example.h"

namespace lamina::data {

/// … words … ? 5 8 2 1 3 … words … ? 5 8 2 1 3: a mark and a number at a random position among random words. The mark
/// appears again at the end, and the digits after it are scored. Longer rows have more words.
struct Passkey {
  static constexpr std::string_view kKind = "passkey";
  static constexpr std::string_view kDoc = "a number hidden in noise and asked for at the end (arXiv:2305.16300)";
  int64_t digits = 5;
  int64_t words = 16;
  static void visit_fields(auto& self, auto&& field) {
    field("digits", self.digits, "digits of the number");
    field("words", self.words, "number of different words around it");
  }
  bool operator==(const Passkey&) const = default;

  void check() const;
  int64_t vocab_size() const;
  int64_t answers() const;
  int64_t shortest() const;
  Example make(Dice& dice, int64_t length) const;
  /// Like make(), but with exactly `before` of the room() words before the number.
  Example make_at(Dice& dice, int64_t length, int64_t before) const;
  /// Number of words in a row.
  int64_t room(int64_t length) const { return length + 1 - 2 * (1 + digits); }
  std::string spell(int64_t token) const;
};

}  // namespace lamina::data
