#include "lamina/lab/report/chart_data.h"

#include <cmath>

#include "lamina/lab/report/columns.h"
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
      points.push_back({rounded(p.x), rounded(p.mean), rounded(p.low), rounded(p.high)});
    }
    list.push_back({{"label", band.label}, {"points", std::move(points)}});
  }
  return list;
}

Json costs_json(const Study& study) {
  Json list = Json::array();
  for (const CostChart& chart : cost_charts(study)) {
    const Style style = column_of(chart.key).style;
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

}  // namespace

std::string chart_data(const Study& study) {
  const Column quality = column_of(study.quality());
  const Json json = {{"labels", labels_of(study)},
                     {"quality",
                      {{"title", quality.title},
                       {"percent", quality.style == Style::percent},
                       {"lowerIsBetter", study.lower_is_better()}}},
                     {"target", json_of(study.target)},
                     {"validation", bands_json(bands_of(study, Losses::validation))},
                     {"training", bands_json(bands_of(study, Losses::training))},
                     {"costs", costs_json(study)},
                     {"stretch", stretch_json(study)}};
  return json.dump();
}

}  // namespace lamina::lab::report
