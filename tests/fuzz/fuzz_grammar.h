#pragma once

// Invariants of every grammar that compiles, checked with a small vocabulary.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lamina/base/error.h"
#include "lamina/text/grammar/grammar_state.h"

namespace lamina::fuzz {

/// Every byte, some tokens that cross the borders of JSON's elements or end inside a character, and an end token.
inline const std::shared_ptr<const text::VocabularyIndex>& small_vocabulary() {
  static const auto vocabulary = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* token : {"{\"", "\":", "\": \"", "\",\"", "\"}", "}]", "aa", "ab", "abab", "10", "00", "\xC3\xA9",
                              "\xA9\xC3", "\\u00", "true", "null", "  ", "\n  ", "aaaaaaaaaaaaaaaa"}) {
      tokens.emplace_back(token);
    }
    tokens.emplace_back();
    const auto end = static_cast<text::TokenId>(tokens.size() - 1);
    return std::make_shared<const text::VocabularyIndex>(std::move(tokens), std::vector<text::TokenId>{end});
  }();
  return vocabulary;
}

/// Follows the masks, choosing tokens by the bytes of `choices`. A mask must allow exactly the tokens that are
/// accepted, and never be empty, because every byte is a token.
inline void follow_masks(const text::Grammar& grammar, std::string_view choices) {
  const auto& vocabulary = small_vocabulary();
  text::GrammarState state(std::make_shared<text::TokenGrammar>(grammar, vocabulary));
  std::vector<uint32_t> words(vocabulary->words());
  std::string written;
  for (const char choice : choices.substr(0, 6)) {
    state.mask(words);
    std::vector<text::TokenId> allowed;
    for (text::TokenId id = 0; id < vocabulary->size(); ++id) {
      const bool bit = (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
      if (bit != state.allows(id)) __builtin_trap();
      if (bit) allowed.push_back(id);
    }
    if (allowed.empty()) __builtin_trap();
    const std::string forced = state.forced_bytes(8);
    text::GrammarState copy = state;
    if (!copy.accept_bytes(forced)) __builtin_trap();
    const text::TokenId chosen = allowed[static_cast<unsigned char>(choice) % allowed.size()];
    if (!state.accept(chosen)) __builtin_trap();
    if (state.ended()) {
      if (!grammar.matches(written)) __builtin_trap();
      return;
    }
    written += vocabulary->bytes(chosen);
    if (grammar.matches(written) != state.can_end()) __builtin_trap();
  }
}

/// The input up to the first zero byte is the grammar, the rest chooses tokens. Only an Error may be thrown.
template <class Compile>
void compile_and_follow(const uint8_t* data, size_t size, const Compile& compile) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string_view choices =
      end == input.size() ? std::string_view("\x01\x40\x90\xFF\x22\x07", 6) : input.substr(end + 1);
  try {
    follow_masks(compile(input.substr(0, end)), choices);
  } catch (const Error&) {
  }
}

}  // namespace lamina::fuzz
