#include "lamina/lab/run/run_result.h"

#include <fstream>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/lab/run/json_values.h"
#include "lamina/lab/run/stability.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab {
namespace {

constexpr int kResultVersion = 1;

/// All stored fields. Writing and reading share this list.
template <class Result, class F>
void visit(Result& result, const F& field) {
  field("seed", result.seed);
  field("best_loss", result.best_loss);
  field("best_step", result.best_step);
  field("final_loss", result.final_loss);
  field("bits_per_byte", result.bits_per_byte);
  field("accuracy", result.accuracy);
  field("accuracy_long", result.accuracy_long);
  field("tokens_per_second", result.tokens_per_second);
  field("decode_tokens_per_second", result.decode_tokens_per_second);
  field("peak_memory_bytes", result.peak_memory_bytes);
  field("spikes", result.spikes);
  field("gradient_outliers", result.gradient_outliers);
  field("diverged", result.diverged);
  field("divergence", result.divergence);
  field("seconds", result.seconds);
  field("curve_step", result.curve_step);
  field("curve_loss", result.curve_loss);
  field("evaluation_step", result.evaluation_step);
  field("evaluation_loss", result.evaluation_loss);
  field("evaluation_seconds", result.evaluation_seconds);
}

/// Fields that results of older versions do not have.
template <class Result, class F>
void visit_newer(Result& result, const F& field) {
  field("tokens_per_step", result.tokens_per_step);
  field("curve_seconds", result.curve_seconds);
}

template <class T>
Json to_json(const T& value) {
  return value;
}
Json to_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

template <class T>
void from_json(const Json& json, T& value) {
  value = json.get<T>();
}
void from_json(const Json& json, std::optional<double>& value) {
  value = json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

std::optional<double> number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

}  // namespace

std::optional<size_t> RunResult::reached(double target) const {
  for (size_t i = 0; i < evaluation_loss.size(); ++i) {
    if (evaluation_loss[i] <= target) return i;
  }
  return {};
}

std::vector<double> RunResult::tokens_at(const std::vector<double>& steps) const {
  if (tokens_per_step == 0) return {};
  std::vector<double> tokens;
  for (const double step : steps) tokens.push_back(step * static_cast<double>(tokens_per_step));
  return tokens;
}

std::string write_run_result(const RunResult& result) {
  Json json{{"version", kResultVersion}};
  const auto write = [&](const char* key, const auto& value) { json[key] = to_json(value); };
  visit(result, write);
  visit_newer(result, write);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<RunResult> read_run_result(const std::string& path) {
  if (!file_exists(path)) return {};
  RunResult result;
  try {
    const Json json = try_parse_json<Json>(read_text(path)).value_or(Json());
    if (json.at("version") != kResultVersion) return {};
    visit(result, [&](const char* key, auto& value) { from_json(json.at(key), value); });
    visit_newer(result, [&](const char* key, auto& value) {
      if (json.contains(key)) from_json(json[key], value);
    });
  } catch (const Json::exception&) {
    return {};
  }
  return result;
}

void read_log_into(RunResult& result, const std::string& log_file) {
  std::ifstream file;
  if (file_exists(log_file)) file.open(log_file);
  LAMINA_CHECK(file.is_open(), log_file, ": cannot be read; delete the run's folder to repeat the run");
  std::vector<double> norms;
  std::vector<double> rates;
  double seconds = 0;
  for (std::string text; std::getline(file, text);) {
    const Json line = try_parse_json<Json>(text).value_or(Json());
    if (!line.is_object()) continue;
    const std::optional<double> step = number(line, "step");
    if (!step) continue;
    seconds = number(line, "seconds").value_or(seconds);
    if (const auto loss = number(line, "loss")) {
      result.curve_step.push_back(*step);
      result.curve_loss.push_back(*loss);
      result.curve_seconds.push_back(seconds);
      norms.push_back(number(line, "grad_norm").value_or(0));
      if (const auto rate = number(line, "tokens_per_second")) rates.push_back(*rate);
    }
    if (const auto loss = number(line, "validation_loss")) {
      result.evaluation_step.push_back(*step);
      result.evaluation_loss.push_back(*loss);
      result.evaluation_seconds.push_back(seconds);
      result.accuracy = number(line, "accuracy");
      result.accuracy_long = number(line, "accuracy_long");
    }
  }
  const Stability stability = stability_of(result.curve_loss, norms);
  result.spikes = stability.spikes;
  result.gradient_outliers = stability.gradient_outliers;
  // The logged rates are smoothed. Their median is robust to short disturbances of the machine.
  if (!rates.empty()) result.tokens_per_second = median_of(std::move(rates));
}

}  // namespace lamina::lab
