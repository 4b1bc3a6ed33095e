#include "lamina/arch/rules.h"

#include "lamina/arch/count.h"

namespace lamina::arch {
namespace {

void parameters_fit(const ArchSpec& spec, Findings& findings) {
  try {
    count_parameters(spec);
  } catch (const Error& error) {
    findings.note("", error.what());
  }
}

constexpr Rule kParametersFit{"parameters_fit", "the number of parameters fits into 63 bits",
                              "make d_model, d_ff, vocab_size or the number of experts smaller", parameters_fit};

std::vector<Rule> make_table() {
  std::vector<Rule> table;
  for (const auto& part :
       {model_rules(), mixer_rules(), position_rules(), ffn_rules(), encoder_rules(), retrieval_rules()}) {
    table.insert(table.end(), part.begin(), part.end());
  }
  table.push_back(kParametersFit);
  return table;
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = make_table();
  return table;
}

std::vector<Problem> violations(const ArchSpec& filled) {
  std::vector<Problem> problems;
  for (const Rule& rule : rules()) {
    if (rule.id == kParametersFit.id && !problems.empty()) continue;
    Findings findings(rule, problems);
    rule.test(filled, findings);
  }
  return problems;
}

}  // namespace lamina::arch
