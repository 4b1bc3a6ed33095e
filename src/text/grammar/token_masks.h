#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "lamina/text/grammar/machine.h"
#include "lamina/text/grammar/vocabulary_index.h"

namespace lamina::text::grammar {

inline constexpr uint64_t kMaxMaskWork = 20'000'000;  ///< maximum number of visited configurations for one mask

/// The part of a state's mask that does not depend on the caller of its rule. It is computed once per state of the
/// automaton and cached, so that most of a mask is a copy (the idea of XGrammar, Dong et al. 2024).
struct StateMask {
  std::vector<uint32_t> words;  ///< tokens that every caller allows; empty if `ids` lists them
  std::vector<TokenId> ids;
  /// Only for counted rules: begun[n] lists the tokens that begin n more bodies. begun[0] is empty.
  std::vector<std::vector<TokenId>> begun;
  /// A trie node below which the caller decides, and the number of bodies completed there.
  struct Return {
    uint32_t node = 0;
    uint32_t completed = 0;
  };
  std::vector<Return> returns;
};

/// The masks of a program over a vocabulary.
class TokenMasks {
 public:
  TokenMasks(LazyDfa& dfa, const VocabularyIndex& vocabulary) : dfa_(dfa), vocabulary_(vocabulary) {}

  /// Sets the bits of the tokens that a configuration allows.
  void add(Config config, Frames& frames, std::span<uint32_t> words);
  /// Sets the bits of the tokens below a trie node that the configurations (after the node's bytes) allow. Returns
  /// whether there is any.
  bool add_below(uint32_t node, Machine& machine, const std::vector<Config>& configs, std::span<uint32_t> words);
  /// Computes the masks of states near the root first, until `work` configurations were visited.
  void prepare(uint64_t work);
  size_t bytes() const { return bytes_; }

 private:
  const StateMask& of_state(uint32_t state);
  StateMask compute(uint32_t state);
  ByteSet bytes_after(RuleId rule);
  uint32_t bodies_begun(const Frames& frames, std::span<const Config> set) const;

  LazyDfa& dfa_;
  const VocabularyIndex& vocabulary_;
  std::unordered_map<uint32_t, std::unique_ptr<StateMask>> masks_;
  std::vector<uint32_t> scratch_;
  size_t bytes_ = 0;
  uint64_t computed_ = 0;  // work spent on masks of states
};

}  // namespace lamina::text::grammar
