#pragma once

#include <string_view>
#include <vector>

#include "lamina/arch/problem.h"
#include "lamina/arch/spec.h"

namespace lamina::arch {

/// Collects violations of one rule.
class Findings;

/// A condition that every architecture must meet after fill_defaults().
struct Rule {
  std::string_view id;
  std::string_view holds;  ///< the condition, for the documentation
  std::string_view hint;   ///< how to fix a violation
  void (*test)(const ArchSpec& spec, Findings& findings);
};

/// All rules.
const std::vector<Rule>& rules();

/// Every violation of every rule. Rules that need complete sizes run only if there is no other violation.
std::vector<Problem> violations(const ArchSpec& filled);

/// Collects the violations of one rule.
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

/// The rules, by subject.
std::vector<Rule> model_rules();
std::vector<Rule> mixer_rules();
std::vector<Rule> position_rules();
std::vector<Rule> ffn_rules();
std::vector<Rule> encoder_rules();
std::vector<Rule> retrieval_rules();

}  // namespace lamina::arch
