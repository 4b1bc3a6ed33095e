#pragma once

#include <string>
#include <vector>

#include "lamina/arch/cluster/search.h"

namespace lamina::arch {

/// A published figure and what is needed to predict it.
struct PublishedRow {
  std::string name;
  std::string source;   ///< arXiv id and table
  std::string cluster;  ///< a preset of presets/clusters
  std::string table;    ///< rows with the same name are alternatives that a reader compares
  bool fitted = false;  ///< its time is used to fit the cluster's constants
  int64_t devices = 1;
  ArchSpec architecture;  ///< resolved
  LayoutWish layout;      ///< what the source says; the search chooses the rest
  TrainingSetup setup;
  double seconds = 0;    ///< per step; 0: not published
  double tflops = 0;     ///< per device, if the source gives it instead of seconds
  double state_gib = 0;  ///< weights, gradients and optimizer state, mean over devices; 0: not published
  double activations_gib = 0;
};

/// A published figure beside ours.
struct PredictedRow {
  PublishedRow row;
  StepEstimate estimate;
  double seconds_error = 0;      ///< predicted / published - 1
  double state_error = 0;        ///< like seconds_error
  double activations_error = 0;  ///< like seconds_error
};

/// Reads a JSON file of published figures (tests/golden/cluster/published.json). Throws Error or SpecError.
std::vector<PublishedRow> read_published(const std::string& path);

/// Predicts a row on this cluster: the fastest layout with the published fields that fits, or the smallest if none
/// does.
PredictedRow predict(const PublishedRow& row, const Cluster& cluster);

/// Product and memory efficiency that minimise the squared logarithmic error of the fitted rows of one cluster, on a
/// grid of steps of 0.01.
struct FittedEfficiency {
  double product = 0;
  double memory = 0;
  double error = 0;  ///< root mean square of log(predicted / published)
};
FittedEfficiency fit_efficiency(const std::vector<PublishedRow>& rows, const Cluster& cluster);

/// Markdown tables of predicted and published figures with their errors.
std::string validation_markdown(const std::vector<PredictedRow>& rows);

}  // namespace lamina::arch
