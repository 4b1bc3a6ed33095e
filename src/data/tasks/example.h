#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lamina::data {

/// One row of a synthetic task: tokens, and which of them can be predicted from the tokens before them.
struct Example {
  std::vector<int64_t> tokens;  ///< row length + 1 tokens; the last one is only a target
  std::vector<bool> scored;     ///< per token; the first token is never scored

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  void add(int64_t token) {
    tokens.push_back(token);
    scored.push_back(false);
  }
  void ask(int64_t answer) {
    tokens.push_back(answer);
    scored.push_back(true);
  }
  /// Appends `token` until there are `until` tokens.
  void fill(int64_t token, int64_t until) {
    tokens.resize(static_cast<size_t>(until), token);
    scored.resize(static_cast<size_t>(until), false);
  }
};

// Special tokens of tasks whose answer repeats or rearranges the input.
inline constexpr int64_t kBlank = 0;
inline constexpr int64_t kAgain = 1;  ///< separates the input from the answer
inline constexpr int64_t kFirstSymbol = 2;

/// Readable name of symbol `index`: a … z, then numbers.
inline std::string symbol_name(int64_t index) {
  return index < 26 ? std::string(1, static_cast<char>('a' + index)) : std::to_string(index);
}

// The tasks. Each is a struct of its parameters, which visit_fields lists for recipes (src/arch/fields.h), with
//   check()       throws Error if the parameters are invalid
//   vocab_size()  all tokens are below this
//   answers()     number of possible answers, equally likely unless the task says otherwise: chance accuracy is
//                 1 / answers()
//   shortest()    the shortest row length that fits an example
//   make()        creates an example of length + 1 tokens
//   spell()       a token in readable form
// and, if every answer follows one kAgain at a position that depends only on the row length:
//   source_length()  tokens before kAgain in rows of this length; an encoder–decoder reads them with its encoder

}  // namespace lamina::data
