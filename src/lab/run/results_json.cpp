#include <algorithm>
#include <filesystem>

#include "lamina/arch/json.h"
#include "lamina/arch/picture.h"
#include "lamina/arch/value_json.h"
#include "lamina/base/files.h"
#include "lamina/base/version.h"
#include "lamina/lab/run/json_values.h"
#include "lamina/lab/run/results.h"

namespace lamina::lab {
namespace {

constexpr size_t kCurvePoints = 400;

/// Steps, losses and, if known, seconds and tokens. At most kCurvePoints points; longer curves are averaged over
/// neighbouring points.
Json curve_json(const RunResult& run) {
  const std::vector<double>& steps = run.curve_step;
  const bool timed = run.curve_seconds.size() == steps.size();
  const size_t each = (steps.size() + kCurvePoints - 1) / kCurvePoints;
  std::vector<double> step;
  std::vector<double> loss;
  std::vector<double> seconds;
  for (size_t i = 0; i < steps.size(); i += std::max<size_t>(each, 1)) {
    const size_t end = std::min(i + each, steps.size());
    double sum = 0;
    for (size_t j = i; j < end; ++j) sum += run.curve_loss[j];
    step.push_back(steps[end - 1]);
    loss.push_back(sum / static_cast<double>(end - i));
    if (timed) seconds.push_back(run.curve_seconds[end - 1]);
  }
  Json json = {{"step", step}, {"loss", loss}};
  if (timed) json["seconds"] = seconds;
  return json;
}

Json evaluations_json(const RunResult& run) {
  Json json = {{"step", run.evaluation_step}, {"loss", run.evaluation_loss}};
  if (run.evaluation_seconds.size() == run.evaluation_step.size()) json["seconds"] = run.evaluation_seconds;
  return json;
}

Json run_json(const RunResult& run, const MetricContext& context) {
  const auto value = [&](const char* metric) { return or_null(find_metric(metric)->of(run, context)); };
  return {{"seed", run.seed},
          {"run", or_null(run.folder)},
          {"best_loss", or_null(run.best_loss)},
          {"best_step", run.best_step},
          {"final_loss", or_null(run.final_loss)},
          {"bits_per_byte", or_null(run.bits_per_byte)},
          {"accuracy", or_null(run.accuracy)},
          {"accuracy_long", or_null(run.accuracy_long)},
          {"steps_to_target", value("steps_to_target")},
          {"seconds_to_target", value("seconds_to_target")},
          {"tokens_per_second", or_null(run.tokens_per_second)},
          {"decode_tokens_per_second", or_null(run.decode_tokens_per_second)},
          {"peak_memory_bytes", run.peak_memory_bytes > 0 ? Json(run.peak_memory_bytes) : Json()},
          {"seconds", run.seconds},
          {"spikes", run.spikes},
          {"gradient_outliers", run.gradient_outliers},
          {"diverged", run.diverged},
          {"divergence", or_null(run.divergence)},
          {"stopped_early", false},
          {"tokens_per_step", run.tokens_per_step > 0 ? Json(run.tokens_per_step) : Json()},
          {"best_loss_equal_time", value("best_loss_equal_time")},
          {"final_loss_equal_time", value("final_loss_equal_time")},
          {"best_loss_equal_tokens", value("best_loss_equal_tokens")},
          {"final_loss_equal_tokens", value("final_loss_equal_tokens")},
          {"curve", curve_json(run)},
          {"evaluations", evaluations_json(run)}};
}

Json summary_json(const std::map<std::string, MetricSummary>& summaries) {
  Json json = Json::object();
  for (const MetricInfo& metric : metrics()) {  // keeps the order of metrics()
    const auto found = summaries.find(metric.name);
    if (found == summaries.end()) continue;
    const MetricSummary& summary = found->second;
    json[metric.name] = {{"mean", or_null(summary.mean)},
                         {"spread", or_null(summary.spread)},
                         {"runs", summary.runs},
                         {"difference", or_null(summary.difference)},
                         {"reach", or_null(summary.ci95_half_width)},
                         {"p", or_null(summary.p)},
                         {"p_alone", or_null(summary.p_alone)},
                         {"margin", or_null(summary.margin)},
                         {"p_equivalence", or_null(summary.p_equivalence)},
                         {"seeds_needed", summary.seeds_needed ? Json(*summary.seeds_needed) : Json()},
                         {"mark", summary.mark}};
  }
  return json;
}

Json adjusted_json(const std::optional<Adjustment>& adjusted) {
  if (!adjusted) return {};
  return {
      {"field", adjusted->field}, {"from", adjusted->from}, {"to", adjusted->to}, {"difference", adjusted->difference}};
}

Json tuning_json(const VariantResult& variant) {
  Json trials = Json::array();
  for (size_t i = 0; i < variant.trials.size(); ++i) {
    const TuningTrial& trial = variant.trials[i];
    trials.push_back(
        {{"changes", trial.changes}, {"loss", or_null(trial.loss)}, {"chosen", variant.chosen_trial == i}});
  }
  return trials;
}

Json variant_json(const VariantResult& variant, const MetricContext& context) {
  const bool built = variant.parameters > 0;
  Json runs = Json::array();
  for (const RunResult& run : variant.runs) runs.push_back(run_json(run, context));
  return {{"name", variant.variant.name},
          {"label", variant.variant.label},
          {"switches", variant.variant.set},
          {"recipe", variant.variant.recipe},
          {"architecture", built ? arch::spec_to_json(variant.architecture, arch::Defaults::write) : Json()},
          {"diagram_svg", built ? Json(arch::draw(variant.architecture, variant.variant.label)) : Json()},
          {"parameters", built ? Json(variant.parameters) : Json()},
          {"flops_per_token", built ? Json(variant.flops_per_token) : Json()},
          {"kv_bytes_per_token", built ? Json(variant.kv_bytes_per_token) : Json()},
          {"training_flops", built && variant.training_flops > 0 ? Json(variant.training_flops) : Json()},
          {"adjusted", adjusted_json(variant.adjusted)},
          {"cannot", or_null(variant.cannot)},
          {"highest_stable_learning_rate", or_null(variant.highest_stable_learning_rate)},
          {"tuning", tuning_json(variant)},
          {"runs", runs},
          {"summary", summary_json(variant.summary)}};
}

Json stretch_json(const StretchResult& result) {
  Json rows = Json::array();
  Json passkey = Json::array();
  for (const StretchRow& row : result.rows) {
    const auto add = [&](const char* reading, const std::vector<std::optional<double>>& perplexity) {
      rows.push_back({{"variant", row.variant},
                      {"reading", reading},
                      {"perplexity", list_json(perplexity)},
                      {"cannot", or_null(row.cannot)}});
    };
    add("non-overlapping", row.non_overlapping);
    add("sliding", row.sliding);
    for (size_t i = 0; i < row.passkey.size(); ++i) {
      passkey.push_back({{"variant", row.variant},
                         {"length", result.lengths[i]},
                         {"depths", result.depths},
                         {"accuracy", list_json(row.passkey[i])}});
    }
  }
  return {{"trained_length", result.trained_length},
          {"lengths", result.lengths},
          {"tokens", result.tokens},
          {"rows", rows},
          {"passkey", passkey}};
}

Json scaling_json(const Results& results) {
  Json groups = Json::array();
  for (const ScalingResult& group : results.scaling) {
    Json points = Json::array();
    for (const ScalingPoint& point : group.points) {
      points.push_back({{"size", point.size}, {"seed", point.seed}, {"loss", point.loss}});
    }
    Json json = {{"name", group.group}, {"variants", group.variants}, {"points", points}, {"fit", Json()}};
    if (group.fit) {
      const ScalingFit& fit = *group.fit;
      json["fit"] = {
          {"irreducible", fit.irreducible},
          {"coefficient", fit.coefficient},
          {"exponent", fit.exponent},
          {"exponent_low", or_null(fit.exponent_low)},
          {"exponent_high", or_null(fit.exponent_high)},
          {"determined", fit.determined},
          {"sizes", fit.sizes},
          {"seeds", fit.seeds},
          {"curve",
           {{"size", fit.curve_size}, {"loss", fit.curve_loss}, {"low", fit.curve_low}, {"high", fit.curve_high}}}};
    }
    groups.push_back(std::move(json));
  }
  return {{"against", arch::value_to_json(results.study.scaling->against, arch::Defaults::write)}, {"groups", groups}};
}

Json machine_json(const Machine& machine) {
  return {{"cpu", machine.cpu},         {"cores", machine.cores},   {"jobs", machine.jobs},
          {"threads", machine.threads}, {"device", machine.device}, {"memory_bytes", machine.memory_bytes},
          {"system", machine.system}};
}

}  // namespace

std::string results_json(const Results& results) {
  const Study& study = results.study;
  Json variants = Json::array();
  const MetricContext context = context_of(results);
  for (const VariantResult& variant : results.variants) variants.push_back(variant_json(variant, context));
  Json findings = Json::array();
  for (const Finding& finding : results.findings) {
    findings.push_back({{"kind", finding.kind},
                        {"text", finding.text},
                        {"verdict", or_null(finding.verdict)},
                        {"claim", or_null(finding.claim)}});
  }
  Json json = {{"schema", 1},
               {"name", study.name},
               {"question", study.question},
               {"mode", arch::value_to_json(study.mode, arch::Defaults::write)},
               {"complete", results.complete},
               {"description", parse_json<Json>(write_study(study), "study")},
               {"command", results.command},
               {"version", std::string(kVersion)},
               {"machine", machine_json(results.machine)},
               {"metric", arch::value_to_json(study.metric, arch::Defaults::write)},
               {"target", or_null(results.target)},
               {"margin", study.margin},
               {"equal_seconds", or_null(context.seconds)},
               {"equal_tokens", or_null(context.tokens)},
               {"base", study.base_name},
               {"compared_with", reference_words(study)},
               {"matching", arch::value_to_json(study.matching, arch::Defaults::write)},
               {"data_sha256", results.data_hash},
               {"seconds", results.seconds},
               {"seconds_of_runs", results.seconds_of_runs},
               {"variants", variants},
               {"findings", findings}};
  if (results.study.scaling) json["scaling"] = scaling_json(results);
  if (results.stretch) json["stretch"] = stretch_json(*results.stretch);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_results(const Results& results, const std::string& folder) {
  write_text((std::filesystem::path(folder) / "results.json").string(), results_json(results));
}

}  // namespace lamina::lab
