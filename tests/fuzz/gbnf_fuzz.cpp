// Reads any bytes as a GBNF grammar: gives a grammar or an Error. The masks of a grammar allow exactly the tokens that
// it accepts.
#include "fuzz_grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lamina::fuzz::compile_and_follow(data, size, [](std::string_view text) { return lamina::text::Grammar::gbnf(text); });
  return 0;
}
