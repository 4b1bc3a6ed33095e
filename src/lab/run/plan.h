#pragma once

#include "lamina/lab/run/results.h"
#include "lamina/lab/run/run.h"

namespace lamina::lab {

/// How runs share the cores of the machine.
struct Parallelism {
  int jobs = 1;     ///< concurrent runs
  int threads = 1;  ///< per run
};
/// The study's jobs and threads; by default one core per run, or on a GPU one run at a time.
Parallelism parallelism_of(const Study& study, int cores);

/// Converts variants to run plans.
class Planner {
 public:
  /// `runs` is the parent folder of all run folders.
  Planner(const Study& study, const StudyData& data, int threads, const std::string& runs);

  /// Resolves, matches and counts a variant. Throws an Error if the model cannot be built.
  VariantResult build(const Variant& variant) const;
  /// Plans a run of a built variant. `changes` apply to the recipe after the variant's own changes.
  RunPlan plan(const VariantResult& variant, int64_t seed, const std::vector<std::string>& changes = {}) const;

 private:
  train::Recipe recipe_for(const Variant& variant, const arch::ArchSpec& architecture,
                           const std::vector<std::string>& changes) const;
  arch::ArchSpec with_vocabulary(arch::ArchSpec spec) const;

  const Study& study_;
  const StudyData& data_;
  int threads_;
  std::string runs_;
  std::optional<double> size_;  ///< size of the base, if variants are matched
  int64_t length_ = 0;          ///< sequence length of the base
};

/// The size of a variant for a scaling fit.
double scaling_size(const Study& study, const VariantResult& variant);

/// Builds the base and every variant for this data. Adds failures to `problems`. In a search some combinations may
/// fail, so there each choice only has to be parsed.
void check_variants(const Study& study, const StudyData& data, std::vector<arch::Problem>& problems);

/// Plans with distinct hashes in order, and for each original plan its index among them.
struct Distinct {
  std::vector<RunPlan> plans;
  std::vector<size_t> index;
};
Distinct distinct(const std::vector<RunPlan>& plans);

}  // namespace lamina::lab
