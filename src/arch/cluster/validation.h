#pragma once

#include <string>
#include <vector>

#include "lamina/arch/cluster/search.h"

namespace lamina::arch {

/// A published figure, and the setup needed to predict it.
struct PublishedRow {
  std::string name;
  std::string source;   ///< arXiv id and table
  std::string cluster;  ///< a preset of presets/clusters
  std::string table;    ///< rows with the same name are alternatives to compare
  bool fitted = false;  ///< its time was used to fit the cluster's constants
  int64_t devices = 1;
  ArchSpec architecture;  ///< resolved
  LayoutWish layout;      ///< fields given by the source; the search chooses the others
  TrainingSetup setup;
  double seconds = 0;    ///< per step; 0: not published
  double tflops = 0;     ///< per device, if the source gives it instead of seconds
  double state_gib = 0;  ///< weights, gradients and optimizer state, mean over devices; 0: not published
  double activations_gib = 0;
};

/// A published figure and our prediction.
struct PredictedRow {
  PublishedRow row;
  StepEstimate estimate;
  double seconds_error = 0;      ///< predicted / published - 1
  double state_error = 0;        ///< predicted / published - 1
  double activations_error = 0;  ///< predicted / published - 1
};

/// Reads a JSON file of published figures (tests/golden/cluster/published.json). Throws Error or SpecError.
std::vector<PublishedRow> read_published(const std::string& path);

/// Predicts a row on this cluster, with the fastest layout that has the published fields and fits. If none fits: the
/// smallest one.
PredictedRow predict(const PublishedRow& row, const Cluster& cluster);

/// Efficiencies of products and memory that minimise the squared logarithmic error of one cluster's fitted rows. Found
/// on a grid with steps of 0.01.
struct FittedEfficiency {
  double product = 0;
  double memory = 0;
  double error = 0;  ///< root mean square of log(predicted / published)
};
FittedEfficiency fit_efficiency(const std::vector<PublishedRow>& rows, const Cluster& cluster);

/// Markdown tables of predicted and published figures with their errors.
std::string validation_markdown(const std::vector<PredictedRow>& rows);

}  // namespace lamina::arch
