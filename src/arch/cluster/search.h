#pragma once

#include <string>
#include <vector>

#include "lamina/arch/cluster/step.h"

namespace lamina::arch {

/// A layout in which some fields are fixed and the others are to be found.
struct LayoutWish {
  Layout layout;
  std::vector<std::string> fixed;  ///< names of the fixed fields
  bool has(std::string_view field) const;
};
/// Reads "path=value" assignments (without the prefix `layout.`). Throws SpecError with every problem.
LayoutWish read_layout_wish(const std::vector<std::string>& assignments);
/// Reads "path=value" assignments (without the prefix `training.`) on top of `setup`. Throws SpecError.
TrainingSetup with_setup_overrides(const TrainingSetup& setup, const std::vector<std::string>& assignments);

/// Result of a search.
struct LayoutSearch {
  /// The fastest layouts that fit, at most one for the same dp, tp, pp, cp and ep.
  std::vector<StepEstimate> best;
  std::vector<std::string> limits;  ///< what limits each of `best`
  StepEstimate smallest;            ///< the layout that needs the least memory
  int64_t considered = 0;           ///< possible layouts
  int64_t fitting = 0;              ///< those that fit into memory
};

/// Tries every possible layout with the wished fields: divisors of `devices` for dp, tp, pp, cp and ep, ZeRO stages,
/// recomputation, interleaving and powers of two as micro-batch. Sequence parallelism is used with tensor parallelism
/// unless it is fixed. Throws SpecError if no layout is possible.
LayoutSearch find_layouts(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                          const LayoutWish& wish, int64_t devices, size_t most = 5);

}  // namespace lamina::arch
