#pragma once

#include <string>
#include <vector>

#include "lamina/lab/study.h"

namespace lamina::lab {

/// One choice that a base can be given by itself.
struct Switch {
  const char* group;
  const char* name;
  const char* label;
  /// "path=value" each. {context/4} and the like stand for a size of the base divided by a number: context, d_model,
  /// d_ff, n_heads.
  std::vector<std::string> set;
};
const std::vector<Switch>& switches();

/// Names of the groups, in the order of the table.
std::vector<std::string> switch_groups();

/// The switch of that name, or those of a group that this base can take and that change it. An unknown name is an Error
/// that names the nearest.
std::vector<Variant> switch_variants(const std::string& name_or_group, const arch::ArchSpec& base);
/// All switches that this base can take and that change it.
std::vector<Variant> all_switch_variants(const arch::ArchSpec& base);
/// The order of adoption of the decision guide: pre-norm, position, RMS norm, gated feed-forward, grouped queries;
/// without what the base has already.
std::vector<Variant> ladder_steps(const arch::ArchSpec& base);

}  // namespace lamina::lab
