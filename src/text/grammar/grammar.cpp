#include "lamina/text/grammar/grammar.h"

#include <utility>
#include <vector>

#include "lamina/text/grammar/gbnf.h"
#include "lamina/text/grammar/json_schema.h"
#include "lamina/text/grammar/json_text.h"
#include "lamina/text/grammar/machine.h"
#include "lamina/text/grammar/program.h"

namespace lamina::text {

Grammar::Grammar(grammar::Program program) : program_(std::make_shared<const grammar::Program>(std::move(program))) {}

Grammar Grammar::json_schema(std::string_view schema, const JsonOptions& options, const std::string& name) {
  return Grammar(grammar::compile_json_schema(schema, options, name));
}

Grammar Grammar::json(bool any_value, const JsonOptions& options) {
  grammar::Rules rules;
  grammar::JsonText text(rules, options);
  const grammar::RuleId root = rules.add_rule("root");
  rules.define(root, any_value ? text.any_value() : text.any_object());
  return Grammar(grammar::compile(rules, root, "json"));
}

Grammar Grammar::regex(std::string_view pattern, const std::string& name) {
  grammar::Rules rules;
  const grammar::RuleId root = rules.add_rule("root");
  rules.define(root, rules.automaton(grammar::pattern_nfa(pattern, grammar::Matching::whole, name)));
  return Grammar(grammar::compile(rules, root, name));
}

Grammar Grammar::gbnf(std::string_view text, const std::string& name) {
  return Grammar(grammar::compile_gbnf(text, name));
}

bool Grammar::matches(std::string_view text) const {
  grammar::LazyDfa dfa(*program_);
  grammar::Frames frames;
  grammar::Machine machine(dfa, frames);
  std::vector<grammar::Config> set;
  machine.closure({dfa.start(0), 0}, set, 0);
  bool ended = !machine.returns.empty();
  for (const char byte : text) {
    const size_t size = set.size();
    if (!machine.step(set, 0, size, static_cast<uint8_t>(byte))) return false;
    set.erase(set.begin(), set.begin() + static_cast<std::ptrdiff_t>(size));
    ended = !machine.returns.empty();
  }
  return ended;
}

}  // namespace lamina::text
