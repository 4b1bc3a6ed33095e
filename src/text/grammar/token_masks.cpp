#include "lamina/text/grammar/token_masks.h"

#include <algorithm>

#include "lamina/base/error.h"

namespace lamina::text::grammar {
namespace {

/// Limit on the cached masks of all states. If it is exceeded, the cache is cleared.
constexpr size_t kMaxMaskBytes = size_t{64} << 20;

void set_bit(std::span<uint32_t> words, TokenId id) { words[static_cast<size_t>(id) / 32] |= 1U << (id % 32); }
void clear_bit(std::span<uint32_t> words, TokenId id) { words[static_cast<size_t>(id) / 32] &= ~(1U << (id % 32)); }

void check_mask_work(const Machine& machine) {
  LAMINA_CHECK(machine.work <= kMaxMaskWork, "the grammar is too ambiguous: a mask needs more than ", kMaxMaskWork,
               " steps; rewrite rules with equal beginnings as one rule");
}

/// Walks the trie below `top` as far as the machine can read its bytes. `set` has the configurations at `top`. Calls
/// visit(node, begin, end) for each node that is reached, with the range of its configurations. Frames created on the
/// way are removed again.
template <class Visit>
void walk_trie(const VocabularyIndex& vocabulary, uint32_t top, Machine& machine, std::vector<Config>& set,
               const Visit& visit) {
  struct Level {
    size_t begin;
    size_t frames;
  };
  const std::vector<VocabularyIndex::Node>& nodes = vocabulary.nodes();
  const uint16_t depth = nodes[top].depth;
  std::vector<Level> levels = {{0, machine.frames().size()}};
  size_t end = set.size();
  for (uint32_t i = top + 1; i < nodes[top].end;) {
    const VocabularyIndex::Node& node = nodes[i];
    const auto level = static_cast<size_t>(node.depth - depth - 1);
    if (level + 1 < levels.size()) {  // returned from a deeper node
      end = levels[level + 1].begin;
      machine.frames().truncate(levels[level + 1].frames);
      levels.resize(level + 1);
      set.resize(end);
    }
    const size_t frames = machine.frames().size();
    const bool alive = machine.step(set, levels.back().begin, end, node.byte);
    if (alive) visit(i, end, set.size());
    if (alive && node.end > i + 1 && set.size() > end) {
      levels.push_back({end, frames});
      end = set.size();
      ++i;
    } else {
      set.resize(end);
      machine.frames().truncate(frames);
      i = node.end;
    }
  }
  machine.frames().truncate(levels[0].frames);
}

}  // namespace

uint32_t TokenMasks::bodies_begun(const Frames& frames, std::span<const Config> set) const {
  uint32_t least = UINT32_MAX;
  for (const Config& config : set) {
    uint32_t frame = config.frame;
    while (frames[frame].after != LazyDfa::kDead) frame = frames[frame].parent;
    least = std::min(least, frames[frame].count);
  }
  return least;
}

ByteSet TokenMasks::bytes_after(RuleId rule) {
  ByteSet bytes;
  const auto& repetitions = dfa_.program().repetitions;
  for (size_t i = 0; i < repetitions.size(); ++i) {
    if (repetitions[i].rule != rule) continue;
    const uint32_t next = dfa_.after(i);
    if (dfa_.flags(next) == LazyDfa::reads) {
      bytes |= dfa_.first_bytes(next);
    } else {
      bytes.set();  // a called rule, or the caller, may read any byte
    }
  }
  return bytes;
}

StateMask TokenMasks::compute(uint32_t state) {
  StateMask mask;
  Frames frames;
  Machine machine(dfa_, frames);
  const RuleId rule = dfa_.rule(state);
  const bool counted = dfa_.program().rules[rule].counted;
  ByteSet after;  // bytes that can follow the rule
  if (counted) {
    machine.open_repetition = rule;
    after = bytes_after(rule);
  } else {
    after.set();
  }
  const auto& nodes = vocabulary_.nodes();
  const auto can_go_on = [&](uint32_t node) {
    for (uint32_t child = node + 1; child < nodes[node].end; child = nodes[child].end) {
      if (after[nodes[child].byte]) return true;
    }
    return false;
  };
  std::vector<Config> set = {{state, 0}};
  walk_trie(vocabulary_, 0, machine, set, [&](uint32_t node, size_t begin, size_t end) {
    check_mask_work(machine);
    if (nodes[node].token < nodes[node + 1].token) {
      uint32_t begun = 0;
      if (counted) {
        begun = bodies_begun(frames, {set.data() + begin, end - begin});
        for (const uint32_t completed : machine.returns) begun = std::min(begun, completed - 1);
      }
      for (uint32_t t = nodes[node].token; t < nodes[node + 1].token; ++t) {
        mask.ids.push_back(vocabulary_.tokens()[t]);
        if (begun == 0) continue;
        if (mask.begun.size() <= begun) mask.begun.resize(begun + 1);
        mask.begun[begun].push_back(vocabulary_.tokens()[t]);
      }
    }
    if (!machine.returns.empty() && nodes[node].end > node + 1 && can_go_on(node)) {
      for (const uint32_t completed : machine.returns) mask.returns.push_back({node, completed});
    }
  });
  computed_ += machine.work;
  if (mask.ids.size() > vocabulary_.words()) {  // a bit mask is smaller than the list
    mask.words.assign(vocabulary_.words(), 0);
    for (const TokenId id : mask.ids) set_bit(mask.words, id);
    mask.ids = {};
  }
  mask.ids.shrink_to_fit();
  return mask;
}

const StateMask& TokenMasks::of_state(uint32_t state) {
  const auto found = masks_.find(state);
  if (found != masks_.end()) return *found->second;
  if (bytes_ > kMaxMaskBytes) {
    masks_.clear();
    bytes_ = 0;
  }
  auto mask = std::make_unique<StateMask>(compute(state));
  bytes_ += sizeof(StateMask) + mask->words.size() * 4 + mask->ids.size() * sizeof(TokenId) +
            mask->returns.size() * sizeof(StateMask::Return);
  for (const auto& tokens : mask->begun) bytes_ += tokens.size() * sizeof(TokenId);
  return *masks_.emplace(state, std::move(mask)).first->second;
}

void TokenMasks::add(Config config, Frames& frames, std::span<uint32_t> words) {
  const StateMask& mask = of_state(config.state);
  const bool counted = dfa_.program().rules[dfa_.rule(config.state)].counted;
  const Frame frame = frames[config.frame];
  Program::Repetition repetition{0, 0, kUnbounded, 0};
  if (counted) repetition = dfa_.program().repetitions[frame.counted - 1];
  // Number of bodies that may still begin after the current one.
  const uint32_t left = repetition.max == kUnbounded ? UINT32_MAX : repetition.max - 1 - frame.count;
  if (mask.begun.size() <= uint64_t{left} + 1) {
    for (size_t i = 0; i < mask.words.size(); ++i) words[i] |= mask.words[i];
    for (const TokenId id : mask.ids) set_bit(words, id);
  } else {
    scratch_.assign(mask.words.begin(), mask.words.end());
    scratch_.resize(words.size(), 0);
    for (const TokenId id : mask.ids) set_bit(scratch_, id);
    for (size_t begun = size_t{left} + 1; begun < mask.begun.size(); ++begun) {
      for (const TokenId id : mask.begun[begun]) clear_bit(scratch_, id);
    }
    for (size_t i = 0; i < words.size(); ++i) words[i] |= scratch_[i];
  }
  if (mask.returns.empty()) return;
  const size_t size = frames.size();
  Machine machine(dfa_, frames);
  std::vector<Config> callers;
  if (counted) {
    machine.closure({frame.after, frame.parent}, callers, 0);
  } else {
    machine.pop(config.frame, callers, 0);
  }
  if (!callers.empty()) {
    for (const StateMask::Return& at : mask.returns) {
      const uint64_t completed = uint64_t{frame.count} + at.completed;
      const bool fits =
          !counted || (completed >= repetition.min && (repetition.max == kUnbounded || completed <= repetition.max));
      if (fits) add_below(at.node, machine, callers, words);
    }
  }
  frames.truncate(size);
}

bool TokenMasks::add_below(uint32_t node, Machine& machine, const std::vector<Config>& configs,
                           std::span<uint32_t> words) {
  const auto& nodes = vocabulary_.nodes();
  std::vector<Config> set = configs;
  bool any = false;
  walk_trie(vocabulary_, node, machine, set, [&](uint32_t at, size_t, size_t) {
    check_mask_work(machine);
    for (uint32_t t = nodes[at].token; t < nodes[at + 1].token; ++t) {
      if (!words.empty()) set_bit(words, vocabulary_.tokens()[t]);
      any = true;
    }
  });
  return any;
}

void TokenMasks::prepare(uint64_t work) {
  std::vector<uint32_t> states;
  for (RuleId rule = 0; rule < dfa_.program().rules.size(); ++rule) states.push_back(dfa_.start(rule));
  std::unordered_map<uint32_t, bool> seen;
  const uint64_t limit = computed_ + work;
  for (size_t i = 0; i < states.size() && computed_ < limit; ++i) {
    if (!seen.emplace(states[i], true).second) continue;
    if ((dfa_.flags(states[i]) & LazyDfa::reads) != 0) of_state(states[i]);
    for (int byte = 0; byte < 256; ++byte) {
      const uint32_t next = dfa_.next(states[i], static_cast<uint8_t>(byte));
      if (next != LazyDfa::kDead && !seen.contains(next)) states.push_back(next);
    }
    for (const LazyDfa::Call& call : dfa_.calls_of(states[i])) states.push_back(call.after);
  }
}

}  // namespace lamina::text::grammar
