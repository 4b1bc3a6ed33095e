#include "lamina/data/tasks/induction.h"

#include "lamina/base/error.h"

namespace lamina::data {
namespace {

constexpr int64_t kTrigger = 0;
constexpr int64_t kFirstFiller = 1;

}  // namespace

void Induction::check() const {
  LAMINA_CHECK(symbols >= 2 && questions >= 1, "induction: ", questions, " questions, ", symbols,
               " symbols; expected at least 1 and 2");
}
int64_t Induction::vocab_size() const { return kFirstFiller + symbols; }
int64_t Induction::answers() const { return symbols; }
int64_t Induction::shortest() const { return 2 * questions + 1; }

Example Induction::make(Dice& dice, int64_t length) const {
  Example example;
  const int64_t answer = kFirstFiller + dice.below(symbols);
  const int64_t fillers = length + 1 - 2 * (questions + 1);
  bool known = false;
  // The last question is at the end of the row. The other triggers are at random positions among the fillers.
  for (const bool here : dice.places(questions, fillers + questions)) {
    if (!here) {
      example.add(kFirstFiller + dice.below(symbols));
      continue;
    }
    example.add(kTrigger);
    known ? example.ask(answer) : example.add(answer);
    known = true;
  }
  example.add(kTrigger);
  example.ask(answer);
  return example;
}

std::string Induction::spell(int64_t token) const {
  return token == kTrigger ? "!" : symbol_name(token - kFirstFiller);
}

}  // namespace lamina::data
