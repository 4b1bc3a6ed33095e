#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"
#include "lamina/arch/json.h"
#include "lamina/arch/picture.h"
#include "lamina/base/files.h"
#include "lamina/base/version.h"
#include "lamina/lab/run/findings.h"
#include "lamina/lab/run/json_values.h"
#include "lamina/lab/run/machine.h"
#include "lamina/lab/stretch/position_kinds.h"
#include "lamina/lab/stretch/stretch.h"
#include "lamina/train/run_log.h"

namespace lamina::lab {
namespace {

using Numbers = std::vector<std::optional<double>>;

Json list_of(const Numbers& numbers) {
  Json list = Json::array();
  for (const auto& number : numbers) list.push_back(or_null(number));
  return list;
}

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

Json curve_json(const std::vector<train::RunPoint>& points) {
  Json step = Json::array();
  Json loss = Json::array();
  for (const train::RunPoint& point : points) {
    step.push_back(point.step);
    loss.push_back(point.loss);
  }
  return {{"step", step}, {"loss", loss}};
}

/// Summary of a finished training, from its folder.
Json run_json(const std::string& folder) {
  const train::RunLog log = train::read_run_log(folder);
  const train::Recipe recipe = train::RunFolder(folder).recipe();
  const auto best = std::min_element(log.validation.begin(), log.validation.end(),
                                     [](const auto& a, const auto& b) { return a.loss < b.loss; });
  const bool measured = best != log.validation.end();
  const train::RunPoint last = log.train.empty() ? train::RunPoint() : log.train.back();
  return {{"seed", recipe.seed},
          {"best_loss", measured ? Json(best->loss) : Json()},
          {"best_step", measured ? Json(best->step) : Json()},
          {"final_loss", measured ? Json(log.validation.back().loss) : Json()},
          {"bits_per_byte", nullptr},
          {"accuracy", nullptr},
          {"accuracy_long", nullptr},
          {"steps_to_target", nullptr},
          {"seconds_to_target", nullptr},
          {"tokens_per_second", last.seconds > 0 ? Json(last.tokens / last.seconds) : Json()},
          {"decode_tokens_per_second", nullptr},
          {"peak_memory_bytes", nullptr},
          {"spikes", nullptr},
          {"gradient_outliers", nullptr},
          {"diverged", false},
          {"stopped_early", false},
          {"curve", curve_json(log.train)},
          {"evaluations", curve_json(log.validation)}};
}

Json variant_json(const StretchRow& row, const StretchResult& result) {
  const bool built = !row.architecture.layers.empty();
  double cached = 0;
  for (const arch::CacheRow& cache : built ? arch::cache_rows(row.architecture) : std::vector<arch::CacheRow>()) {
    cached += cache.per_token * static_cast<double>(cache.layers) * 4;
  }
  Json runs = Json::array();
  if (built && !row.run.empty()) runs.push_back(run_json(row.run));
  return {{"name", row.name},
          {"label", row.label},
          {"switches", row.switches},
          {"architecture", built ? arch::spec_to_json(row.architecture, arch::Defaults::write) : Json()},
          {"diagram_svg", built ? Json(arch::draw(row.architecture, row.label)) : Json()},
          {"parameters", built ? Json(arch::count_parameters(row.architecture).total) : Json()},
          {"flops_per_token",
           built ? Json(arch::flops_per_token(row.architecture, result.trained_length).forward()) : Json()},
          {"kv_bytes_per_token", built ? Json(cached) : Json()},
          {"adjusted", nullptr},
          {"cannot", built ? Json() : or_null(row.cannot)},
          {"highest_stable_learning_rate", nullptr},
          {"runs", runs},
          {"summary", Json::object()}};
}

Json stretch_part(const StretchResult& result) {
  Json rows = Json::array();
  Json passkey = Json::array();
  for (const StretchRow& row : result.rows) {
    const auto add = [&](const char* reading, const Numbers& perplexity) {
      rows.push_back({{"variant", row.name},
                      {"reading", reading},
                      {"perplexity", list_of(perplexity)},
                      {"cannot", or_null(row.cannot)}});
    };
    add("non-overlapping", row.side_by_side);
    add("sliding", row.sliding);
    for (size_t i = 0; i < row.passkey.size(); ++i) {
      passkey.push_back({{"variant", row.name},
                         {"length", result.lengths[i]},
                         {"depths", result.depths},
                         {"accuracy", list_of(row.passkey[i])}});
    }
  }
  return {{"trained_length", result.trained_length},
          {"lengths", result.lengths},
          {"tokens", result.tokens},
          {"rows", rows},
          {"passkey", passkey}};
}

/// Sentence about a row at the longest length.
Json finding(const StretchRow& row, const StretchResult& result) {
  const std::optional<double> near = row.side_by_side.front();
  const std::optional<double> far = row.side_by_side.back();
  std::string text = row.label + ": ";
  if (!near || !far) {
    text += str("cannot read ", result.lengths.back(), " tokens", row.cannot.empty() ? "" : ": " + row.cannot, ".");
  } else {
    const double growth = 100 * (*far / *near - 1);
    text += str("perplexity ", fixed(*near, 2), " at ", result.lengths.front(), " tokens and ", fixed(*far, 2), " at ",
                result.lengths.back(), " side by side (", fixed(std::abs(growth), 1),
                growth < 0 ? " % less), " : " % more), ", fixed(row.sliding.front().value_or(0), 2), " and ",
                fixed(row.sliding.back().value_or(0), 2), " with sliding windows.");
  }
  return {{"text", text}, {"verdict", nullptr}, {"claim", nullptr}};
}

/// Published perplexity growth at four times the training length (non-overlapping windows), and that training length.
struct GrowthClaim {
  const char* variant;
  double growth;
  int64_t trained;
};
constexpr GrowthClaim kClaims[] = {{"rope", 0.20, 2048}, {"alibi", 0.03, 2048}};

/// The verdict gets the prefix kAtOurSize if the training lengths differ.
std::string growth_verdict(const GrowthClaim& claim, double growth, int64_t trained) {
  const bool same = same_setting(static_cast<double>(claim.trained), static_cast<double>(trained));
  return (same ? "" : kAtOurSize) + std::string(growth <= claim.growth + 0.02 ? "holds" : "does not");
}

void add_claims(const StretchResult& result, Json& findings) {
  const auto at = std::find(result.lengths.begin(), result.lengths.end(), 4 * result.trained_length);
  if (at == result.lengths.end()) return;
  const auto index = static_cast<size_t>(at - result.lengths.begin());
  for (const GrowthClaim& claim : kClaims) {
    for (const StretchRow& row : result.rows) {
      if (row.name != claim.variant || !row.side_by_side.front() || !row.side_by_side[index]) continue;
      const double growth = *row.side_by_side[index] / *row.side_by_side.front() - 1;
      findings.push_back(
          {{"text", str(row.label, ": perplexity grows by ", fixed(100 * growth, 1), " % at four times ",
                        "the length (", result.trained_length, " to ", *at, " tokens, side by side).")},
           {"verdict", growth_verdict(claim, growth, result.trained_length)},
           {"claim", str(row.label, " grows by ", fixed(100 * claim.growth, 0), " % from ", claim.trained, " to ",
                         4 * claim.trained, " tokens; holds: no more than 2 points above")}});
    }
  }
}

Json description_json(const StretchResult& result, const StretchOptions& options) {
  Json json{{"data", options.data},     {"length", result.trained_length}, {"times", options.times},
            {"tokens", result.tokens},  {"passkey", options.passkey},      {"examples", options.examples},
            {"depths", options.depths}, {"kinds", options.kinds}};
  if (!options.model.empty()) {
    json["model"] = options.model;
    return json;
  }
  json["recipe"] = parse_json<Json>(train::write_recipe(train::load_recipe(options.recipe, options.changes)), "recipe");
  if (options.passkey) {
    json["passkey_recipe"] = parse_json<Json>(
        train::write_recipe(train::load_recipe(options.passkey_recipe, options.passkey_changes)), "recipe");
  }
  return json;
}

Json machine_json(int threads) {
  const Machine machine = this_machine();
  return {{"cpu", machine.cpu},       {"cores", machine.cores},   {"threads", threads},
          {"device", machine.device}, {"system", machine.system}, {"memory_bytes", machine.memory_bytes}};
}

}  // namespace

std::string stretch_json(const StretchResult& result, const StretchOptions& options) {
  Json variants = Json::array();
  Json findings = Json::array();
  for (const StretchRow& row : result.rows) {
    variants.push_back(variant_json(row, result));
    findings.push_back(finding(row, result));
  }
  add_claims(result, findings);
  const bool has_base = std::any_of(result.rows.begin(), result.rows.end(),
                                    [](const StretchRow& row) { return row.name == kScaledKind; });
  const Json json{{"schema", 1},
                  {"name", "stretch"},
                  {"question", str("How far can a model trained on ", result.trained_length,
                                   " tokens read, by how it knows positions?")},
                  {"mode", "stretch"},
                  {"complete", true},
                  {"description", description_json(result, options)},
                  {"command", options.command},
                  {"version", std::string(kVersion)},
                  {"machine", machine_json(result.threads)},
                  {"metric", "loss"},
                  {"target", nullptr},
                  {"base", has_base ? kScaledKind : result.rows.front().name},
                  {"matching", "none"},
                  {"variants", variants},
                  {"findings", findings},
                  {"stretch", stretch_part(result)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lamina::lab
