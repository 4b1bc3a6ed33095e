#include "lamina/lab/report/chart_data.h"

#include <cmath>

#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/effects.h"
#include "lamina/lab/report/series.h"
#include "lamina/lab/run/json_values.h"

namespace lamina::lab::report {
namespace {

Json json_of(const Number& value) { return value ? Json(*value) : Json(nullptr); }

/// Rounds to six significant digits, which is enough for a screen and keeps files small.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

Json bands_json(const std::vector<Band>& bands) {
  Json list = Json::array();
  for (const Band& band : bands) {
    Json points = Json::array();
    for (const Band::Point& p : band.points) {
      points.push_back({rounded(p.x), rounded(p.mean), rounded(p.low), rounded(p.high),
                        p.tokens ? Json(rounded(*p.tokens)) : Json(nullptr),
                        p.seconds ? Json(rounded(*p.seconds)) : Json(nullptr)});
    }
    list.push_back({{"label", band.label}, {"points", std::move(points)}});
  }
  return list;
}

Json costs_json(const Study& study) {
  Json list = Json::array();
  for (const CostChart& chart : cost_charts(study)) {
    const Style style = column_of(study, chart.key).style;
    Json points = Json::array();
    for (const CostPoint& point : chart.points) {
      points.push_back({{"label", point.label},
                        {"cost", point.cost},
                        {"costText", written(point.cost, style)},
                        {"quality", point.quality},
                        {"spread", json_of(point.spread)}});
    }
    list.push_back({{"key", chart.key},
                    {"title", chart.title},
                    {"style", style == Style::bytes ? "bytes" : "short"},
                    {"points", points}});
  }
  return list;
}

Json stretch_json(const Study& study) {
  if (!study.stretch) return nullptr;
  const Stretch& stretch = *study.stretch;
  Json rows = Json::array();
  for (const StretchRow& row : stretch.rows) {
    Json perplexity = Json::array();
    for (const Number& value : row.perplexity) perplexity.push_back(json_of(value));
    rows.push_back({{"label", study.label_of(row.variant)}, {"reading", row.reading}, {"perplexity", perplexity}});
  }
  Json passkey = Json::array();
  for (const PasskeyRow& row : stretch.passkey) {
    for (size_t i = 0; i < row.depths.size(); ++i) {
      passkey.push_back({{"label", study.label_of(row.variant)},
                         {"length", row.length},
                         {"depth", row.depths[i]},
                         {"accuracy", json_of(row.accuracy[i])}});
    }
  }
  return {{"trained", stretch.trained_length}, {"lengths", stretch.lengths}, {"rows", rows}, {"passkey", passkey}};
}

Json effects_json(const Study& study) {
  Json list = Json::array();
  for (const Effect& effect : effects_of(study)) {
    list.push_back({{"label", effect.label},
                    {"reference", effect.reference},
                    {"difference", effect.difference},
                    {"low", json_of(effect.low)},
                    {"high", json_of(effect.high)},
                    {"margin", json_of(effect.margin)},
                    {"mean", json_of(effect.mean)},
                    {"text", written_effect(study, effect)},
                    {"p", effect.p ? Json(written_p(*effect.p)) : Json(nullptr)},
                    {"mark", effect.mark},
                    {"markText", written_mark(study, effect.mark)}});
  }
  return list;
}

Json scaling_chart_json(const Study& study) {
  if (!study.scaling) return nullptr;
  Json groups = Json::array();
  for (const ScalingGroup& group : study.scaling->groups) {
    Json points = Json::array();
    for (const ScalingPoint& point : group.points) points.push_back({point.size, point.loss, point.seed});
    Json curve = Json::array();
    for (size_t i = 0; i < group.curve_size.size(); ++i) {
      const bool band = !group.curve_low.empty();
      curve.push_back({rounded(group.curve_size[i]), rounded(group.curve_loss[i]),
                       rounded(band ? group.curve_low[i] : group.curve_loss[i]),
                       rounded(band ? group.curve_high[i] : group.curve_loss[i])});
    }
    groups.push_back({{"label", group.name},
                      {"points", points},
                      {"curve", curve},
                      {"irreducible", group.irreducible},
                      {"law", group.fitted ? written_law(*study.scaling, group) : ""},
                      {"exponent", group.fitted ? written_exponent(study, group) : ""}});
  }
  return {{"against", study.scaling->against}, {"groups", groups}};
}

/// Texts of the charts in the study's language.
Json chart_words(const Study& study) {
  Json words = Json::object();
  for (const auto& [key, text] : study.words().all()) {
    for (const char* part : {"chart.", "mark.", "reading.", "measure.", "reference.", "scaling."}) {
      if (key.starts_with(part)) words[key] = text;
    }
  }
  return words;
}

}  // namespace

std::string chart_data(const Study& study) {
  const Column quality = column_of(study, study.quality());
  const Json json = {{"labels", labels_of(study)},
                     {"quality",
                      {{"title", quality.title},
                       {"percent", quality.style == Style::percent},
                       {"lowerIsBetter", study.lower_is_better()}}},
                     {"words", chart_words(study)},
                     {"comparedWith", study.compared_with},
                     {"metric", study.quality()},
                     {"effects", effects_json(study)},
                     {"scaling", scaling_chart_json(study)},
                     {"target", json_of(study.target)},
                     {"validation", bands_json(bands_of(study, Losses::validation))},
                     {"training", bands_json(bands_of(study, Losses::training))},
                     {"costs", costs_json(study)},
                     {"stretch", stretch_json(study)}};
  return json.dump();
}

}  // namespace lamina::lab::report
