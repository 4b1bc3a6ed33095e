#pragma once

#include "lamina/infer/load.h"
#include "lamina/lab/run/results.h"
#include "lamina/lab/stretch/measure.h"

namespace lamina::lab {

/// The stage after training in a study of mode stretch. It trains a passkey model for each variant. Then it measures
/// all variants, and the base with RoPE scalings, at multiples of the training length.
class Stretch {
 public:
  /// Checks recipes, memory and text. Throws an Error or arch::SpecError before any training. `study` and `data` must
  /// outlive this object.
  Stretch(const Study& study, const StudyData& data, const std::string& folder, const Place& place);

  /// Adds a variant without runs for each RoPE scaling of the base, directly after the base.
  void add_scaled_variants(Results& results) const;
  /// Announces the passkey runs, for the estimate of the remaining time.
  void announce(Runner& runner) const;
  /// Sets results.stretch. Returns false if stopped.
  bool run(Results& results, Runner& runner, const StudyWatcher& watcher);

 private:
  void plan_passkeys(const std::string& runs, const Place& place);
  void load_model();
  /// The checkpoints of a variant. With a scaling, they are those of `source`, the variant with this index.
  MeasuredModel measured_model(const VariantResult& variant, const VariantResult& source, size_t index) const;

  const Study& study_;
  std::string folder_;
  StretchResult grid_;
  Device device_;
  ReadingText text_;
  PasskeyMaker passkeys_;
  std::vector<RunPlan> passkey_plans_;  ///< in the order of variants_of(study)
  std::vector<double> passkey_flops_;   ///< forward FLOPs per token of each passkey model
  std::vector<RunOutcome> passkey_outcomes_;
  infer::LoadedModel model_;  ///< the existing model, if the study names one
  std::string model_id_;
};

}  // namespace lamina::lab
