#pragma once

#include "lamina/lab/results.h"
#include "lamina/lab/run.h"

namespace lamina::lab {

/// Jobs and threads as they will be: a core for each run, unless the study says otherwise.
struct Hands {
  int jobs = 1;
  int threads = 1;
};
Hands hands_of(const Study& study, int cores);

/// Turns variants into recipes of runs.
class Planner {
 public:
  /// `runs`: the folder in which runs have theirs.
  Planner(const Study& study, const StudyData& data, int threads, const std::string& runs);

  /// The variant built, matched and counted. Throws Error if it cannot be built.
  VariantResult build(const Variant& variant) const;
  /// A run of a variant that was built, with changes of the recipe on top of the variant's own.
  RunPlan plan(const VariantResult& variant, int64_t seed, const std::vector<std::string>& changes = {}) const;

 private:
  train::Recipe recipe_for(const Variant& variant, const arch::ArchSpec& architecture,
                           const std::vector<std::string>& changes) const;
  arch::ArchSpec with_vocabulary(arch::ArchSpec spec) const;

  const Study& study_;
  const StudyData& data_;
  int threads_;
  std::string runs_;
  std::optional<double> size_;  ///< of the base, where variants are matched
  int64_t length_ = 0;          ///< of the base's sequences
};

/// Builds the base and every variant of the study for this data and adds what fails to `problems`. In a search, whose
/// combinations may fail, each choice must only be readable.
void check_variants(const Study& study, const StudyData& data, std::vector<arch::Problem>& problems);

/// The plans with different hashes, each once and in order, and for every plan given which of them it is.
struct Distinct {
  std::vector<RunPlan> plans;
  std::vector<size_t> index;
};
Distinct distinct(const std::vector<RunPlan>& plans);

}  // namespace lamina::lab
