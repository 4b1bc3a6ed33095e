#pragma once

#include "lamina/lab/run/runner.h"
#include "lamina/lab/stretch/position_kinds.h"
#include "lamina/lab/stretch/readings.h"
#include "lamina/lab/stretch/result.h"
#include "lamina/lab/study/study.h"

namespace lamina::lab {

/// The checkpoints of a variant. If `scaling` is null, they are read unchanged.
struct MeasuredModel {
  std::string variant;
  std::string label;
  const ScalingKind* scaling = nullptr;
  std::string text_model;      ///< checkpoint folder or file
  std::string passkey_model;   ///< checkpoint folder or file; empty: no passkeys
  std::string text_failed;     ///< why the training of the text model failed; perplexity is then not measured
  std::string passkey_failed;  ///< why the training of the passkey model failed
  std::string id;              ///< identifies the checkpoints in the cache
  double text_flops = 0;       ///< FLOPs per token at the training length, for the time estimate
  double passkey_flops = 0;    ///< FLOPs per token of the passkey model; 0: no passkeys
};

/// The lengths, depths and tokens of the settings, without rows.
StretchResult stretch_grid(const StretchSettings& settings, int64_t trained_length);

/// Data, cache and device for measurements.
struct MeasureContext {
  const StretchSettings& settings;
  const ReadingText& text;
  const PasskeyMaker& passkeys;
  std::string cache;  ///< folder of cached rows
  Device device;
  const StudyWatcher& watcher;
};
/// Adds a row for each model to `result`. Rows without failed measurements are cached in `cache`. Returns false if
/// stopped.
bool measure_lengths(const std::vector<MeasuredModel>& models, const MeasureContext& context, StretchResult& result);

}  // namespace lamina::lab
