#include "lamina/data/tasks/dyck.h"

#include "lamina/base/error.h"

namespace lamina::data {

void Dyck::check() const {
  LAMINA_CHECK(kinds >= 2 && depth >= 1, "dyck: ", kinds, " kinds of brackets up to depth ", depth,
               "; expected at least 2 and 1");
}
int64_t Dyck::vocab_size() const { return 2 * kinds; }
int64_t Dyck::answers() const { return kinds; }
/// A row of length `depth` has depth + 1 tokens, so at least one bracket closes.
int64_t Dyck::shortest() const { return depth; }

/// Bracket `kind` opens with token 2·kind and closes with 2·kind + 1.
Example Dyck::make(Dice& dice, int64_t length) const {
  Example example;
  std::vector<int64_t> open;
  while (example.size() <= length) {
    const bool must_open = open.empty();
    const bool must_close = static_cast<int64_t>(open.size()) == depth;
    if (must_open || (!must_close && dice.below(2) == 0)) {
      open.push_back(dice.below(kinds));
      example.add(2 * open.back());
    } else {
      example.ask(2 * open.back() + 1);
      open.pop_back();
    }
  }
  return example;
}

std::string Dyck::spell(int64_t token) const {
  constexpr std::string_view kShapes = "()[]{}<>";
  if (token < static_cast<int64_t>(kShapes.size())) return std::string(1, kShapes[static_cast<size_t>(token)]);
  return str(token % 2 == 0 ? "(" : ")", token / 2);
}

}  // namespace lamina::data
