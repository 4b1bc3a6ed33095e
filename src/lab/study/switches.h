#pragma once

#include <string>
#include <vector>

#include "lamina/lab/study/study.h"

namespace lamina::lab {

/// A single architecture choice that can be applied to a base.
struct Switch {
  const char* group;
  const char* name;
  const char* label;
  /// "path=value" changes. A placeholder such as {context/4} is a size of the base divided by a number. Sizes: context,
  /// d_model, d_ff, n_heads.
  std::vector<std::string> set;
};
const std::vector<Switch>& switches();

/// Group names, in table order.
std::vector<std::string> switch_groups();

/// The switch with this name, or all switches of this group that apply to the base and change it. Throws Error with the
/// nearest name if the name is unknown.
std::vector<Variant> switch_variants(const std::string& name_or_group, const arch::ArchSpec& base);
/// All switches that apply to this base and change it.
std::vector<Variant> all_switch_variants(const arch::ArchSpec& base);
/// Steps of the decision guide, in order of adoption: pre-norm, position, RMSNorm, gated FFN, grouped queries. Skips
/// what the base already has.
std::vector<Variant> ladder_steps(const arch::ArchSpec& base);

}  // namespace lamina::lab
