#pragma once

#include "lamina/infer/load.h"
#include "lamina/lab/run/results.h"
#include "lamina/lab/stretch/measure.h"

namespace lamina::lab {

/// Stage of a study of mode stretch that follows the training of its variants. It trains a passkey model per variant.
/// Then it measures all variants, and the base with RoPE scalings, at multiples of the training length.
class Stretch {
 public:
  /// Checks recipes, memory and text. Throws Error or arch::SpecError before any training. `study` and `data` must
  /// outlive this object.
  Stretch(const Study& study, const StudyData& data, const std::string& folder, const Place& place);

  /// Adds a variant without runs for each RoPE scaling of the base, directly after it.
  void add_scaled_variants(Results& results) const;
  /// Announces the passkey runs, for the estimate of the time left.
  void announce(Runner& runner) const;
  /// Fills results.stretch. Returns false if it was stopped.
  bool run(Results& results, Runner& runner, const StudyWatcher& watcher);

 private:
  void plan_passkeys(const std::string& runs, const Place& place);
  void load_model();
  /// The checkpoints of a variant: its own, or with a scaling those of `source`, the variant with this index.
  MeasuredModel measured_model(const VariantResult& variant, const VariantResult& source, size_t index) const;

  const Study& study_;
  std::string folder_;
  StretchResult grid_;
  Device device_;
  ReadingText text_;
  PasskeyMaker passkeys_;
  std::vector<RunPlan> passkey_plans_;  ///< in the order of variants_of(study)
  std::vector<double> passkey_flops_;   ///< forward FLOPs per token of each
  std::vector<RunOutcome> passkey_outcomes_;
  infer::LoadedModel model_;  ///< existing model, if the study names one
  std::string model_id_;
};

}  // namespace lamina::lab
