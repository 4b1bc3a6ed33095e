#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lamina::data {

/// One row of a synthetic task: tokens, and which of them a model must be able to tell from those before.
struct Example {
  std::vector<int64_t> tokens;  ///< one more than the row is long: the last is only a target
  std::vector<bool> scored;     ///< of each token; the first never is

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  void add(int64_t token) {
    tokens.push_back(token);
    scored.push_back(false);
  }
  void ask(int64_t answer) {
    tokens.push_back(answer);
    scored.push_back(true);
  }
  /// `token` up to this many tokens.
  void fill(int64_t token, int64_t until) {
    tokens.resize(static_cast<size_t>(until), token);
    scored.resize(static_cast<size_t>(until), false);
  }
};

// Of tasks that give back what they were given.
inline constexpr int64_t kBlank = 0;
inline constexpr int64_t kAgain = 1;  ///< behind it stands the answer
inline constexpr int64_t kFirstSymbol = 2;

/// How people read symbol number `index`: a … z, then numbers.
inline std::string symbol_name(int64_t index) {
  return index < 26 ? std::string(1, static_cast<char>('a' + index)) : std::to_string(index);
}

// The tasks. Each is a struct of its parameters, named once in visit_fields as recipes want it (src/arch/fields.h),
// with
//   check()       an Error where its parameters cannot be
//   vocab_size()  tokens are below this
//   answers()     how many tokens an answer may be, all equally likely beforehand but where a task says otherwise:
//                 who guesses is right once in so many times
//   shortest()    the shortest row that holds an example
//   make()        an example, length + 1 tokens
//   spell()       a token for people

}  // namespace lamina::data
