#pragma once

#include <bitset>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "lamina/text/grammar/program.h"

namespace lamina::text::grammar {

inline constexpr size_t kMaxLazyStates = 50'000;
inline constexpr size_t kMaxLazySetElements = 8'000'000;

using ByteSet = std::bitset<256>;

/// The automata of a program's rules, made deterministic state by state when states are first used. A state is a set of
/// program states that all belong to one rule. Calls remain calls; calls of the same rule from one state are merged.
class LazyDfa {
 public:
  static constexpr uint32_t kDead = 0;
  enum Flag : uint8_t { reads = 1, calls = 2, accepts = 4 };
  struct Call {
    RuleId rule = 0;
    uint32_t after = 0;  ///< state after the call
    uint32_t site = 0;   ///< see Program::Call
  };

  explicit LazyDfa(const Program& program);

  const Program& program() const { return program_; }
  uint32_t start(RuleId rule);
  /// The state after a counted repetition.
  uint32_t after(size_t repetition);
  uint32_t next(uint32_t state, uint8_t byte) {
    const uint32_t found = next_[size_t{state} * n_classes_ + program_.byte_class[byte]];
    return found != kUnknown ? found : make_next(state, byte);
  }
  uint8_t flags(uint32_t state) const { return flags_[state]; }
  RuleId rule(uint32_t state) const { return rules_[state]; }
  const std::vector<Call>& calls_of(uint32_t state);
  /// The bytes that a state can read directly, without calls.
  const ByteSet& first_bytes(uint32_t state);
  /// Approximate memory of the states created so far, in bytes.
  size_t bytes() const;

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  uint32_t make_next(uint32_t state, uint8_t byte);
  uint32_t intern(const std::vector<uint32_t>& seeds);
  void find_rules();

  const Program& program_;
  size_t n_classes_;
  std::vector<std::vector<uint32_t>> sets_;
  std::vector<uint8_t> flags_;
  std::vector<RuleId> rules_;
  std::vector<uint32_t> next_;  // indexed by [state, byte class]
  std::vector<std::vector<Call>> calls_;
  std::vector<uint8_t> calls_known_;
  std::unordered_map<uint32_t, ByteSet> first_;
  std::unordered_multimap<uint64_t, uint32_t> by_hash_;
  std::vector<uint32_t> starts_;
  std::vector<uint32_t> afters_;
  std::vector<RuleId> rule_of_;  // indexed by program state
  std::vector<uint8_t> is_final_;
  std::vector<uint8_t> in_closure_;
  size_t set_elements_ = 0;
};

}  // namespace lamina::text::grammar
