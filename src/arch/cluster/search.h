#pragma once

#include <string>
#include <vector>

#include "lamina/arch/cluster/step.h"

namespace lamina::arch {

/// A layout with some fixed fields; the search chooses the others.
struct LayoutWish {
  Layout layout;
  std::vector<std::string> fixed;  ///< names of the fixed fields
  bool has(std::string_view field) const;
};
/// Parses "path=value" assignments (without the prefix `layout.`). Throws a SpecError that lists every problem.
LayoutWish read_layout_wish(const std::vector<std::string>& assignments);
/// Applies "path=value" assignments (without the prefix `training.`) to `setup`. Throws SpecError.
TrainingSetup with_setup_overrides(const TrainingSetup& setup, const std::vector<std::string>& assignments);

/// Result of a search.
struct LayoutSearch {
  /// The fastest layouts that fit in memory, with at most one for the same dp, tp, pp, cp and ep.
  std::vector<StepEstimate> best;
  std::vector<std::string> limits;  ///< what limits each of `best`
  StepEstimate smallest;            ///< the layout that needs the least memory
  int64_t considered = 0;           ///< number of possible layouts
  int64_t fitting = 0;              ///< number of layouts that fit in memory
};

/// Tries every possible layout that has the fixed fields. Tried are divisors of `devices` for dp, tp, pp, cp and ep,
/// ZeRO stages, recomputation, interleaving, and powers of two as micro-batch. Sequence parallelism is used together
/// with tensor parallelism unless it is fixed. Throws a SpecError if no layout is possible.
LayoutSearch find_layouts(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                          const LayoutWish& wish, int64_t devices, size_t most = 5);

}  // namespace lamina::arch
