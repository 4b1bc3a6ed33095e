#pragma once

#include "lamina/lab/run/runner.h"
#include "lamina/lab/stretch/position_kinds.h"
#include "lamina/lab/stretch/readings.h"
#include "lamina/lab/stretch/result.h"
#include "lamina/lab/study/study.h"

namespace lamina::lab {

/// The checkpoints of a variant. A null `scaling` reads them unchanged.
struct MeasuredModel {
  std::string variant;
  std::string label;
  const ScalingKind* scaling = nullptr;
  std::string text_model;      ///< checkpoint folder or file
  std::string passkey_model;   ///< checkpoint folder or file; empty: no passkeys
  std::string text_failed;     ///< why the text model's training failed; then no perplexity is measured
  std::string passkey_failed;  ///< why the passkey model's training failed
  std::string id;              ///< identifies the checkpoints, for the cache
  double text_flops = 0;       ///< FLOPs per token at the training length, for the time estimate
  double passkey_flops = 0;    ///< FLOPs per token of the passkey model; 0: no passkeys
};

/// Lengths, depths and tokens that the settings ask for, without rows.
StretchResult stretch_grid(const StretchSettings& settings, int64_t trained_length);

/// Data, cache and device of the measurements.
struct MeasureContext {
  const StretchSettings& settings;
  const ReadingText& text;
  const PasskeyMaker& passkeys;
  std::string cache;  ///< folder of finished rows
  Device device;
  const StudyWatcher& watcher;
};
/// Adds a row per model to `result`. Rows are cached in `cache` unless a measurement failed. Returns false if stopped.
bool measure_lengths(const std::vector<MeasuredModel>& models, const MeasureContext& context, StretchResult& result);

}  // namespace lamina::lab
