#pragma once

#include <string_view>
#include <vector>

#include "lamina/arch/problem.h"
#include "lamina/arch/spec.h"

namespace lamina::arch {

/// Takes down one violation: where, and what was found and expected.
class Findings;

/// Something that must hold in a filled architecture.
struct Rule {
  std::string_view id;
  std::string_view holds;  ///< what must hold, for the documentation
  std::string_view hint;   ///< what to do when it does not
  void (*test)(const ArchSpec& spec, Findings& findings);
};

/// The whole table.
const std::vector<Rule>& rules();

/// Every violation of every rule. Rules that need all sizes to be there run only when nothing else is wrong.
std::vector<Problem> violations(const ArchSpec& filled);

class Findings {
 public:
  Findings(const Rule& rule, std::vector<Problem>& problems) : rule_(rule), problems_(problems) {}
  void note(const std::string& path, const std::string& message) {
    problems_.push_back({std::string(rule_.id), path, message, std::string(rule_.hint)});
  }

 private:
  const Rule& rule_;
  std::vector<Problem>& problems_;
};

/// The table is written in parts, by subject.
std::vector<Rule> model_rules();
std::vector<Rule> mixer_rules();
std::vector<Rule> position_rules();
std::vector<Rule> ffn_rules();

}  // namespace lamina::arch
