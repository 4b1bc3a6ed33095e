// Reads any bytes as a JSON schema: gives a grammar or an Error. The masks of a grammar allow exactly the tokens that
// it accepts.
#include "fuzz_grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const auto whitespace :
       {lamina::text::JsonOptions::Whitespace::none, lamina::text::JsonOptions::Whitespace::flexible}) {
    lamina::fuzz::compile_and_follow(data, size, [&](std::string_view text) {
      return lamina::text::Grammar::json_schema(text, {whitespace, false});
    });
  }
  return 0;
}
