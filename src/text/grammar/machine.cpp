#include "lamina/text/grammar/machine.h"

#include <algorithm>

#include "lamina/base/error.h"

namespace lamina::text::grammar {

Frames::Frames() : frames_(1), heads_(64, 0) {}

size_t Frames::bucket(const Frame& frame) const {
  uint64_t hash = frame.parent * 0x9E3779B97F4A7C15U;
  hash = (hash ^ (hash >> 29) ^ frame.after) * 0xBF58476D1CE4E5B9U;
  hash = (hash ^ (hash >> 32) ^ frame.count ^ (uint64_t{frame.counted} << 20)) * 0x94D049BB133111EBU;
  return (hash >> 32) & (heads_.size() - 1);
}

uint32_t Frames::intern(const Frame& frame) {
  uint32_t* head = &heads_[bucket(frame)];
  for (uint32_t at = *head; at != 0; at = frames_[at - 1].same_hash) {
    if (frames_[at - 1] == frame) return at - 1;
  }
  frames_.push_back(frame);
  frames_.back().same_hash = *head;
  *head = static_cast<uint32_t>(frames_.size());
  if (frames_.size() > heads_.size()) rehash();
  return static_cast<uint32_t>(frames_.size() - 1);
}

void Frames::rehash() {
  heads_.assign(heads_.size() * 4, 0);
  for (uint32_t id = 1; id < frames_.size(); ++id) {  // oldest first, because truncate() relies on the order
    uint32_t& head = heads_[bucket(frames_[id])];
    frames_[id].same_hash = head;
    head = id + 1;
  }
}

void Frames::truncate(size_t size) {
  while (frames_.size() > size) {
    heads_[bucket(frames_.back())] = frames_.back().same_hash;
    frames_.pop_back();
  }
}

void Machine::add(Config config, std::vector<Config>& set, size_t base) {
  work += (set.size() - base) / 8;
  if (std::find(set.begin() + static_cast<std::ptrdiff_t>(base), set.end(), config) != set.end()) return;
  LAMINA_CHECK(set.size() - base < kMaxConfigs,
               "the grammar is too ambiguous: the text so far can be derived in more than ", kMaxConfigs,
               " ways; rewrite rules with equal beginnings as one rule");
  set.push_back(config);
}

void Machine::forget_visited() {
  visited_.clear();
  if (!seen_.empty()) seen_.clear();
}

bool Machine::is_visited(Config config) {
  constexpr size_t kLong = 64;  // below this size a linear search is faster than hashing
  if (visited_.size() < kLong) return std::find(visited_.begin(), visited_.end(), config) != visited_.end();
  const auto key = [](const Config& c) { return uint64_t{c.state} << 32U | c.frame; };
  if (seen_.empty()) {
    for (const Config& earlier : visited_) seen_.insert(key(earlier));
  }
  return !seen_.insert(key(config)).second;
}

void Machine::visit(Config config) {
  if (config.state == LazyDfa::kDead || is_visited(config)) return;
  LAMINA_CHECK(visited_.size() < kMaxVisited, "the grammar is too ambiguous: more than ", kMaxVisited,
               " rules can begin or end at one place; rewrite rules with equal beginnings as one rule");
  visited_.push_back(config);
}

void Machine::enter_calls(Config config) {
  for (const LazyDfa::Call& call : dfa_.calls_of(config.state)) {
    if (call.site != 0) {
      visit({dfa_.start(call.rule), frames_.intern({config.frame, call.after, 0, call.site})});
    } else if (dfa_.flags(call.after) == LazyDfa::accepts) {
      visit({dfa_.start(call.rule), config.frame});  // a tail call: returns where this rule returns
    } else {
      visit({dfa_.start(call.rule), frames_.intern({config.frame, call.after})});
    }
  }
}

void Machine::leave(uint32_t id) {
  const Frame frame = frames_[id];
  if (frame.after == LazyDfa::kDead) {
    const uint32_t completed = frame.count + 1;
    if (std::find(returns.begin(), returns.end(), completed) == returns.end()) returns.push_back(completed);
    if (open_repetition) visit({dfa_.start(*open_repetition), frames_.intern({0, LazyDfa::kDead, completed})});
    return;
  }
  if (frame.counted == 0) {
    visit({frame.after, frame.parent});
    return;
  }
  const Program::Repetition& repetition = dfa_.program().repetitions[frame.counted - 1];
  const uint32_t completed = frame.count + 1;
  if (completed < repetition.max) {
    // Without a maximum, the count matters only until the minimum is reached.
    const uint32_t count = repetition.max == kUnbounded ? std::min(completed, repetition.min) : completed;
    visit({dfa_.start(repetition.rule), frames_.intern({frame.parent, frame.after, count, frame.counted})});
  }
  if (completed >= repetition.min) visit({frame.after, frame.parent});
}

void Machine::closure(Config config, std::vector<Config>& set, size_t base) {
  forget_visited();
  extend(config, set, base);
}

void Machine::extend(Config config, std::vector<Config>& set, size_t base) {
  const size_t first = visited_.size();
  visit(config);
  for (size_t i = first; i < visited_.size(); ++i) {
    const Config current = visited_[i];
    const uint8_t flags = dfa_.flags(current.state);
    if ((flags & LazyDfa::reads) != 0) add(current, set, base);
    if ((flags & LazyDfa::calls) != 0) enter_calls(current);
    if ((flags & LazyDfa::accepts) != 0) leave(current.frame);
  }
  work += visited_.size() - first;
}

void Machine::pop(uint32_t frame, std::vector<Config>& set, size_t base) {
  forget_visited();
  leave(frame);
  const std::vector<Config> reached = visited_;
  forget_visited();
  for (const Config config : reached) extend(config, set, base);
}

bool Machine::step_all(std::vector<Config>& set, size_t begin, size_t end, uint8_t byte) {
  const size_t base = set.size();
  returns.clear();
  forget_visited();  // only once: configurations reached from one need not be reached again from another
  work += end - begin;
  for (size_t i = begin; i < end; ++i) {
    const Config from = set[i];
    const uint32_t next = dfa_.next(from.state, byte);
    if (next == LazyDfa::kDead) continue;
    const Config to{next, from.frame};
    if (dfa_.flags(next) == LazyDfa::reads) {
      add(to, set, base);
    } else {
      extend(to, set, base);
    }
  }
  return set.size() > base || !returns.empty();
}

}  // namespace lamina::text::grammar
