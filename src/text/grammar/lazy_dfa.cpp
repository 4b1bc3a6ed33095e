#include "lamina/text/grammar/lazy_dfa.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lamina/base/error.h"

namespace lamina::text::grammar {

LazyDfa::LazyDfa(const Program& program)
    : program_(program),
      n_classes_(static_cast<size_t>(program.n_classes)),
      starts_(program.rules.size(), kUnknown),
      afters_(program.repetitions.size(), kUnknown),
      is_final_(program.states.size(), 0),
      in_closure_(program.states.size(), 0) {
  for (const Program::Rule& rule : program.rules) is_final_[rule.final] = 1;
  find_rules();
  sets_.emplace_back();
  flags_.push_back(0);
  rules_.push_back(0);
  calls_.emplace_back();
  calls_known_.push_back(1);
  next_.assign(n_classes_, kDead);
}

void LazyDfa::find_rules() {
  rule_of_.assign(program_.states.size(), kUnknown);
  std::vector<uint32_t> todo;
  for (RuleId rule = 0; rule < program_.rules.size(); ++rule) {
    const auto visit = [&](uint32_t state) {
      if (std::exchange(rule_of_[state], rule) != rule) todo.push_back(state);
    };
    visit(program_.rules[rule].start);
    while (!todo.empty()) {
      const Program::State& state = program_.states[todo.back()];
      todo.pop_back();
      for (const uint32_t to : state.empty) visit(to);
      for (const Program::ByteEdge& edge : state.bytes) visit(edge.to);
      for (const Program::Call& call : state.calls) visit(call.to);
    }
  }
}

uint32_t LazyDfa::start(RuleId rule) {
  if (starts_[rule] == kUnknown) starts_[rule] = intern({program_.rules[rule].start});
  return starts_[rule];
}

uint32_t LazyDfa::after(size_t repetition) {
  if (afters_[repetition] == kUnknown) afters_[repetition] = intern({program_.repetitions[repetition].after});
  return afters_[repetition];
}

uint32_t LazyDfa::intern(const std::vector<uint32_t>& seeds) {
  std::vector<uint32_t> set;
  std::vector<uint32_t> visited;
  uint8_t flags = 0;
  const auto visit = [&](uint32_t state) {
    if (std::exchange(in_closure_[state], 1) == 0) visited.push_back(state);
  };
  for (const uint32_t seed : seeds) visit(seed);
  for (size_t i = 0; i < visited.size(); ++i) {
    const Program::State& state = program_.states[visited[i]];
    for (const uint32_t to : state.empty) visit(to);
    const uint8_t own = static_cast<uint8_t>((state.bytes.empty() ? 0 : reads) | (state.calls.empty() ? 0 : calls) |
                                             (is_final_[visited[i]] != 0 ? accepts : 0));
    if (own != 0) set.push_back(visited[i]);
    flags |= own;
  }
  for (const uint32_t state : visited) in_closure_[state] = 0;
  if (set.empty()) return kDead;
  std::sort(set.begin(), set.end());
  uint64_t hash = 0x9E3779B97F4A7C15U;
  for (const uint32_t state : set) hash = (hash ^ state) * 0xFF51AFD7ED558CCDU + (hash >> 29);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto found = begin; found != end; ++found) {
    if (sets_[found->second] == set) return found->second;
  }
  set_elements_ += set.size();
  LAMINA_CHECK(sets_.size() < kMaxLazyStates && set_elements_ < kMaxLazySetElements, "the grammar needs more than ",
               kMaxLazyStates, " states while it is matched; simplify its expressions");
  const auto id = static_cast<uint32_t>(sets_.size());
  rules_.push_back(rule_of_[set[0]]);
  sets_.push_back(std::move(set));
  flags_.push_back(flags);
  calls_.emplace_back();
  calls_known_.push_back((flags & calls) == 0 ? 1 : 0);
  next_.resize(next_.size() + n_classes_, (flags & reads) != 0 ? kUnknown : kDead);
  by_hash_.emplace(hash, id);
  return id;
}

uint32_t LazyDfa::make_next(uint32_t state, uint8_t byte) {
  std::vector<uint32_t> targets;
  for (const uint32_t from : sets_[state]) {
    for (const Program::ByteEdge& edge : program_.states[from].bytes) {
      if (edge.first <= byte && byte <= edge.last) targets.push_back(edge.to);
    }
  }
  const uint32_t result = targets.empty() ? kDead : intern(targets);
  next_[size_t{state} * n_classes_ + program_.byte_class[byte]] = result;
  return result;
}

const std::vector<LazyDfa::Call>& LazyDfa::calls_of(uint32_t state) {
  if (calls_known_[state] == 0) {
    std::map<std::pair<RuleId, uint32_t>, std::vector<uint32_t>> grouped;
    for (const uint32_t from : sets_[state]) {
      for (const Program::Call& call : program_.states[from].calls) grouped[{call.rule, call.site}].push_back(call.to);
    }
    std::vector<Call> made;
    for (const auto& [callee, targets] : grouped) made.push_back({callee.first, intern(targets), callee.second});
    calls_[state] = std::move(made);
    calls_known_[state] = 1;
  }
  return calls_[state];
}

const ByteSet& LazyDfa::first_bytes(uint32_t state) {
  const auto [found, added] = first_.try_emplace(state);
  if (added) {
    for (const uint32_t from : sets_[state]) {
      for (const Program::ByteEdge& edge : program_.states[from].bytes) {
        for (int byte = edge.first; byte <= edge.last; ++byte) found->second.set(static_cast<size_t>(byte));
      }
    }
  }
  return found->second;
}

size_t LazyDfa::bytes() const {
  constexpr size_t kPerState = 160;  // vectors, hash nodes and flags of a state
  return (set_elements_ + next_.size()) * sizeof(uint32_t) + sets_.size() * kPerState +
         first_.size() * (sizeof(ByteSet) + 3 * sizeof(void*)) + rule_of_.size() * (sizeof(RuleId) + 2);
}

}  // namespace lamina::text::grammar
