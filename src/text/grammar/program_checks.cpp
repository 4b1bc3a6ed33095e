#include "lamina/text/grammar/program_checks.h"

#include <algorithm>
#include <bitset>
#include <utility>
#include <vector>

#include "lamina/base/error.h"

namespace lamina::text::grammar {
namespace {

/// Per state: whether the end of its rule can be reached; with `without_bytes`, without reading anything.
std::vector<uint8_t> states_that_finish(const Program& program, bool without_bytes) {
  struct Source {
    uint32_t state;
    RuleId rule;  // UINT32_MAX: not a call
  };
  constexpr RuleId kNoRule = UINT32_MAX;
  const size_t n = program.states.size();
  std::vector<std::vector<Source>> into(n);
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> callers(program.rules.size());  // (state, state after)
  for (uint32_t s = 0; s < n; ++s) {
    const Program::State& state = program.states[s];
    for (const uint32_t to : state.empty) into[to].push_back({s, kNoRule});
    if (!without_bytes) {
      for (const Program::ByteEdge& edge : state.bytes) into[edge.to].push_back({s, kNoRule});
    }
    for (const Program::Call& call : state.calls) {
      into[call.to].push_back({s, call.rule});
      callers[call.rule].emplace_back(s, call.to);
    }
  }
  std::vector<std::vector<RuleId>> starts(n);
  for (RuleId rule = 0; rule < program.rules.size(); ++rule) starts[program.rules[rule].start].push_back(rule);
  std::vector<uint8_t> done(n, 0);
  std::vector<uint8_t> rule_done(program.rules.size(), 0);
  std::vector<uint32_t> todo;
  const auto set = [&](uint32_t state) {
    if (std::exchange(done[state], 1) == 0) todo.push_back(state);
  };
  for (const Program::Rule& rule : program.rules) set(rule.final);
  while (!todo.empty()) {
    const uint32_t state = todo.back();
    todo.pop_back();
    for (const Source& source : into[state]) {
      if (source.rule == kNoRule || rule_done[source.rule] != 0) set(source.state);
    }
    for (const RuleId rule : starts[state]) {
      rule_done[rule] = 1;
      for (const auto& [caller, after] : callers[rule]) {
        if (done[after] != 0) set(caller);
      }
    }
  }
  return done;
}

/// The rules that a rule can call before it reads a byte.
std::vector<RuleId> first_calls(const Program& program, RuleId rule, const std::vector<uint8_t>& nullable,
                                std::vector<uint32_t>& seen_by) {
  std::vector<RuleId> calls;
  std::vector<uint32_t> todo = {program.rules[rule].start};
  const auto visit = [&](uint32_t state) {
    if (std::exchange(seen_by[state], rule + 1) != rule + 1) todo.push_back(state);
  };
  while (!todo.empty()) {
    const Program::State& state = program.states[todo.back()];
    todo.pop_back();
    for (const uint32_t to : state.empty) visit(to);
    for (const Program::Call& call : state.calls) {
      calls.push_back(call.rule);
      if (nullable[program.rules[call.rule].start] != 0) visit(call.to);
    }
  }
  std::sort(calls.begin(), calls.end());
  calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
  return calls;
}

[[noreturn]] void fail_left_recursive(const Program& program, const std::vector<RuleId>& path, RuleId again,
                                      const std::string& name) {
  std::string cycle;
  const auto begin = std::find(path.begin(), path.end(), again);
  size_t shown = 0;
  for (auto rule = begin; rule != path.end(); ++rule) {
    if (program.rules[*rule].counted) continue;
    cycle += ++shown <= 8 ? program.rules[*rule].name + " → " : (shown == 9 ? "… → " : "");
  }
  throw Error(str(name, ": ", program.rules[again].name, " refers to itself before anything is read (", cycle,
                  program.rules[again].name, "); write the recursion to the right, or as a repetition"));
}

}  // namespace

bool remove_dead_ends(Program& program) {
  const std::vector<uint8_t> live = states_that_finish(program, false);
  for (Program::State& state : program.states) {
    std::erase_if(state.bytes, [&](const Program::ByteEdge& edge) { return live[edge.to] == 0; });
    std::erase_if(state.empty, [&](uint32_t to) { return live[to] == 0; });
    std::erase_if(state.calls, [&](const Program::Call& call) {
      return live[call.to] == 0 || live[program.rules[call.rule].start] == 0;
    });
  }
  return live[program.rules[0].start] != 0;
}

void check_left_recursion(const Program& program, const std::string& name) {
  const std::vector<uint8_t> nullable = states_that_finish(program, true);
  std::vector<uint32_t> seen_by(program.states.size(), 0);
  enum : uint8_t { unseen, open, closed };
  std::vector<uint8_t> mark(program.rules.size(), unseen);
  struct Level {
    std::vector<RuleId> calls;
    size_t next = 0;
  };
  for (RuleId root = 0; root < program.rules.size(); ++root) {
    if (mark[root] != unseen) continue;
    std::vector<RuleId> path = {root};
    std::vector<Level> levels = {{first_calls(program, root, nullable, seen_by)}};
    mark[root] = open;
    while (!path.empty()) {
      Level& level = levels.back();
      if (level.next == level.calls.size()) {
        mark[path.back()] = closed;
        path.pop_back();
        levels.pop_back();
        continue;
      }
      const RuleId next = level.calls[level.next++];
      if (mark[next] == open) fail_left_recursive(program, path, next, name);
      if (mark[next] == closed) continue;
      mark[next] = open;
      path.push_back(next);
      levels.push_back({first_calls(program, next, nullable, seen_by)});
    }
  }
}

void find_byte_classes(Program& program) {
  std::bitset<257> begins;
  begins.set(0);
  for (const Program::State& state : program.states) {
    for (const Program::ByteEdge& edge : state.bytes) {
      begins.set(edge.first);
      begins.set(size_t{edge.last} + 1);
    }
  }
  int current = -1;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (begins[byte]) ++current;
    program.byte_class[byte] = static_cast<uint8_t>(current);
  }
  program.n_classes = current + 1;
}

}  // namespace lamina::text::grammar
