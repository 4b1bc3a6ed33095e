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
  /// "path=value" changes. A placeholder such as {context/4} stands for a size of the base divided by a number. Sizes
  /// are context, d_model, d_ff, head_dim and n_heads; {hybrid}, {rwkv} and {every-4th} are lists of layers.
  std::vector<std::string> set;
};
const std::vector<Switch>& switches();

/// Group names, in table order.
std::vector<std::string> switch_groups();

/// The switch with this name; or all switches of this group that apply to the base and change it. For an unknown name,
/// throws an Error that suggests the nearest one.
std::vector<Variant> switch_variants(const std::string& name_or_group, const arch::ArchSpec& base);
/// All switches that apply to the base and change it.
std::vector<Variant> all_switch_variants(const arch::ArchSpec& base);
/// The steps of the decision guide, in the usual order of adoption: pre-norm, position, RMSNorm, gated FFN, grouped
/// queries. Leaves out steps that the base already has.
std::vector<Variant> ladder_steps(const arch::ArchSpec& base);

}  // namespace lamina::lab
