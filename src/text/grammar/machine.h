#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "lamina/text/grammar/lazy_dfa.h"

namespace lamina::text::grammar {

inline constexpr size_t kMaxConfigs = 512;   ///< maximum number of stacks of one state
inline constexpr size_t kMaxVisited = 8192;  ///< maximum number of configurations visited in one step

/// A call that has not returned. Frames form stacks, which share their lower parts.
struct Frame {
  uint32_t parent = 0;
  uint32_t after = 0;      ///< state to return to; LazyDfa::kDead: bottom of a stack
  uint32_t count = 0;      ///< for counted repetitions: bodies begun; for a bottom frame: bodies begun above it
  uint32_t counted = 0;    ///< 1 + index of the repetition; 0: an ordinary call
  uint32_t same_hash = 0;  ///< next frame in the hash bucket
  bool operator==(const Frame& other) const {
    return parent == other.parent && after == other.after && count == other.count && counted == other.counted;
  }
};

/// All frames of a family of states. Equal frames have the same id, so stacks can be compared by id. The newest frames
/// can be removed again.
class Frames {
 public:
  Frames();
  uint32_t intern(const Frame& frame);
  const Frame& operator[](uint32_t id) const { return frames_[id]; }
  size_t size() const { return frames_.size(); }
  void truncate(size_t size);

 private:
  size_t bucket(const Frame& frame) const;
  void rehash();
  std::vector<Frame> frames_;
  std::vector<uint32_t> heads_;  // per bucket: 1 + id of its newest frame; 0: none
};

/// One way to derive the text so far: the state of the innermost rule, and the calls around it.
struct Config {
  uint32_t state = 0;
  uint32_t frame = 0;
  bool operator==(const Config&) const = default;
};

/// Runs a program as a nondeterministic pushdown automaton: a set of configurations that each read bytes. Sets are
/// ranges of one vector, so that a search can keep the sets of all depths on a stack.
class Machine {
 public:
  Machine(LazyDfa& dfa, Frames& frames) : dfa_(dfa), frames_(frames) {}

  /// If set, the bottom frame represents unknown callers of this counted rule. Its body then repeats without a limit.
  std::optional<RuleId> open_repetition;
  /// Set by closure() and step(): one entry for each time that the bottom frame returned, with the number of completed
  /// bodies (1 without counting).
  std::vector<uint32_t> returns;
  uint64_t work = 0;  ///< number of visited configurations

  /// Appends the configurations that can be reached from `config` without reading, and that can then read. The new part
  /// of `set` begins at `base`.
  void closure(Config config, std::vector<Config>& set, size_t base);
  /// Appends the configurations after set[begin, end) read `byte`. Returns whether there is any, or the bottom frame
  /// returned.
  bool step(std::vector<Config>& set, size_t begin, size_t end, uint8_t byte) {
    if (end - begin != 1) return step_all(set, begin, end, byte);
    // Fast path: most sets have one configuration, and most bytes neither call nor return.
    const Config from = set[begin];
    const uint32_t next = dfa_.next(from.state, byte);
    ++work;
    if (next != LazyDfa::kDead && dfa_.flags(next) != LazyDfa::reads) return step_all(set, begin, end, byte);
    returns.clear();
    if (next == LazyDfa::kDead) return false;
    set.push_back({next, from.frame});
    return true;
  }
  /// Appends the configurations after the call of `frame` has returned.
  void pop(uint32_t frame, std::vector<Config>& set, size_t base);

  LazyDfa& dfa() { return dfa_; }
  Frames& frames() { return frames_; }

 private:
  bool step_all(std::vector<Config>& set, size_t begin, size_t end, uint8_t byte);
  void add(Config config, std::vector<Config>& set, size_t base);
  /// Like closure(), but keeps the list of visited configurations.
  void extend(Config config, std::vector<Config>& set, size_t base);
  void visit(Config config);
  bool is_visited(Config config);
  void forget_visited();
  void enter_calls(Config config);
  void leave(uint32_t frame);

  LazyDfa& dfa_;
  Frames& frames_;
  std::vector<Config> visited_;
  std::unordered_set<uint64_t> seen_;  ///< the elements of visited_, once it is long
};

}  // namespace lamina::text::grammar
