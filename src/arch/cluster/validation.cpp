#include "lamina/arch/cluster/validation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "lamina/arch/json.h"
#include "lamina/arch/plan.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"

namespace lamina::arch {
namespace {

constexpr double kGib = 1073741824;

/// The members of an object as "key=value" assignments.
std::vector<std::string> assignments_of(const Json& json, const char* key) {
  std::vector<std::string> assignments;
  if (!json.contains(key)) return assignments;
  for (const auto& [name, value] : json[key].items()) assignments.push_back(name + "=" + value.dump());
  return assignments;
}

double number_or_zero(const Json& json, const char* key) { return json.contains(key) ? json[key].get<double>() : 0; }

/// FLOPs of a step as the source counts them. arXiv:2104.04473 counts what the hardware computes: masked scores, and
/// recomputed forward passes. The other sources count the FLOPs of the model.
double published_flops(const PublishedRow& row, const ModelShape& model) {
  const double tokens = static_cast<double>(row.setup.batch) * static_cast<double>(row.setup.length);
  if (row.setup.attention == AttentionKernel::fused) return 3 * tokens * (model.layer_flops + model.head_flops);
  const double passes = row.layout.layout.recompute == Recompute::full ? 4 : 3;
  return tokens * (passes * model.unmasked_layer_flops + 3 * model.head_flops);
}

PublishedRow published_row(const Json& json) {
  PublishedRow row;
  row.name = json.at("name").get<std::string>();
  row.source = json.at("source").get<std::string>();
  row.cluster = json.at("cluster").get<std::string>();
  row.table = json.at("table").get<std::string>();
  row.fitted = json.contains("fitted") && json["fitted"].get<bool>();
  row.devices = json.at("devices").get<int64_t>();
  row.architecture = resolve(read_arch(json.at("architecture").dump(), row.name), row.name);
  row.layout = read_layout_wish(assignments_of(json, "layout"));
  row.setup = with_setup_overrides({}, assignments_of(json, "training"));
  row.seconds = number_or_zero(json, "seconds");
  row.tflops = number_or_zero(json, "tflops");
  row.state_gib = number_or_zero(json, "state_gib");
  row.activations_gib = number_or_zero(json, "activations_gib");
  const ModelShape model = model_shape(row.architecture, row.setup.length);
  if (row.tflops > 0) {
    row.seconds = published_flops(row, model) / (row.tflops * 1e12 * static_cast<double>(row.devices));
  }
  return row;
}

std::string percent_text(double error) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", 100 * error);
  return text;
}

/// A published run fitted in memory. If the estimate exceeds the memory, the table shows by how much.
std::string excess_text(const DeviceMemory& memory) {
  if (memory.fits()) return "";
  return str("; estimated at ", short_bytes(memory.total()), " of ", short_bytes(memory.capacity));
}

std::string cell(double value, const char* format = "%.2f") {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::vector<PublishedRow> read_published(const std::string& path) {
  const Json json = read_json_file<Json>(path);
  std::vector<PublishedRow> rows;
  try {
    for (const Json& row : json.at("rows")) rows.push_back(published_row(row));
  } catch (const Json::exception& error) {
    throw Error(
        str(path, ": row ", rows.size() + 1, ": ", error.what(), "; compare with tests/golden/cluster/published.json"));
  }
  return rows;
}

PredictedRow predict(const PublishedRow& row, const Cluster& cluster) {
  const ModelShape model = model_shape(row.architecture, row.setup.length);
  LayoutSearch found = find_layouts(cluster, model, row.setup, row.layout, row.devices, 1);
  PredictedRow predicted{row, found.best.empty() ? found.smallest : found.best[0]};
  const DeviceMemory& memory = predicted.estimate.memory;
  if (row.seconds > 0) predicted.seconds_error = predicted.estimate.seconds.total() / row.seconds - 1;
  if (row.state_gib > 0) predicted.state_error = predicted.estimate.mean_state / kGib / row.state_gib - 1;
  if (row.activations_gib > 0) predicted.activations_error = memory.activations / kGib / row.activations_gib - 1;
  return predicted;
}

FittedEfficiency fit_efficiency(const std::vector<PublishedRow>& rows, const Cluster& cluster) {
  FittedEfficiency best;
  best.error = INFINITY;
  Cluster trial = cluster;
  for (int product = 70; product <= 95; ++product) {
    for (int memory = 60; memory <= 95; ++memory) {
      trial.efficiency.product = product / 100.0;
      trial.efficiency.memory = memory / 100.0;
      double squares = 0;
      double count = 0;
      for (const PublishedRow& row : rows) {
        if (!row.fitted || row.seconds <= 0) continue;
        squares += std::pow(std::log1p(predict(row, trial).seconds_error), 2);
        ++count;
      }
      const double error = std::sqrt(squares / std::max(1.0, count));
      if (error < best.error) best = {trial.efficiency.product, trial.efficiency.memory, error};
    }
  }
  return best;
}

std::string validation_markdown(const std::vector<PredictedRow>& rows) {
  std::string text =
      "| row | source | devices | layout | published s | predicted s | error | used in the fit |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const PredictedRow& p : rows) {
    if (p.row.seconds <= 0) continue;
    text +=
        str("| ", p.row.name, " | ", p.row.source, " | ", with_commas(p.row.devices), " | ", to_text(p.estimate.layout),
            excess_text(p.estimate.memory), " | ", cell(p.row.seconds), " | ", cell(p.estimate.seconds.total()), " | ",
            percent_text(p.seconds_error), " | ", p.row.fitted ? "yes" : "", " |\n");
  }
  text +=
      "\n| row | source | what | published GiB | predicted GiB | error |\n"
      "|---|---|---|---|---|---|\n";
  for (const PredictedRow& p : rows) {
    const auto add = [&](const char* what, double published, double error) {
      if (published <= 0) return;
      text += str("| ", p.row.name, " | ", p.row.source, " | ", what, " | ", cell(published, "%.1f"), " | ",
                  cell(published * (1 + error), "%.1f"), " | ", percent_text(error), " |\n");
    };
    add("weights, gradients, optimizer", p.row.state_gib, p.state_error);
    add("activations", p.row.activations_gib, p.activations_error);
  }
  return text;
}

}  // namespace lamina::arch
