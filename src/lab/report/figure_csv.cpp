#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/effects.h"
#include "lamina/lab/report/escape.h"
#include "lamina/lab/report/figures.h"
#include "lamina/lab/report/series.h"

namespace lamina::lab::report {
namespace {

using Line = std::vector<std::string>;

Line point_line(const char* losses, const Band& band, const Band::Point& point) {
  return {losses,
          band.label,
          exact(point.x),
          exact(point.tokens),
          exact(point.seconds),
          exact(point.mean),
          exact(point.low),
          exact(point.high),
          std::to_string(point.seeds)};
}

std::string curves_csv(const Study& study) {
  std::string text =
      csv_line({"losses", "variant", "step", "tokens", "seconds", "mean", "mean_minus_sd", "mean_plus_sd", "seeds"});
  for (const auto& [name, losses] :
       {std::pair("validation", Losses::validation), std::pair("training", Losses::training)}) {
    for (const Band& band : bands_of(study, losses)) {
      for (const Band::Point& point : band.points) text += csv_line(point_line(name, band, point));
    }
  }
  return text;
}

std::string effects_csv(const Study& study) {
  std::string text =
      csv_line({"variant", "reference", "difference", "low95", "high95", "margin", "p", "verdict", "seeds"});
  for (const Effect& effect : effects_of(study)) {
    text += csv_line({effect.label, effect.reference, exact(effect.difference), exact(effect.low), exact(effect.high),
                      exact(effect.margin), exact(effect.p), effect.mark, std::to_string(effect.seeds)});
  }
  return text;
}

std::string cost_csv(const Study& study) {
  std::string text = csv_line({"cost", "variant", "value", study.quality(), "spread"});
  for (const CostChart& chart : cost_charts(study)) {
    for (const CostPoint& point : chart.points) {
      text += csv_line({chart.key, point.label, exact(point.cost), exact(point.quality), exact(point.spread)});
    }
  }
  return text;
}

std::string scaling_csv(const Study& study) {
  std::string text = csv_line({"kind", "group", study.scaling->against, "seed", "loss", "low95", "high95"});
  for (const ScalingGroup& group : study.scaling->groups) {
    for (const ScalingPoint& point : group.points) {
      text += csv_line({"run", group.name, exact(point.size), std::to_string(point.seed), exact(point.loss), "", ""});
    }
    for (size_t i = 0; i < group.curve_size.size(); ++i) {
      const bool band = !group.curve_low.empty();
      text += csv_line({"fit", group.name, exact(group.curve_size[i]), "", exact(group.curve_loss[i]),
                        band ? exact(group.curve_low[i]) : "", band ? exact(group.curve_high[i]) : ""});
    }
  }
  return text;
}

std::string extrapolation_csv(const Study& study) {
  std::string text = csv_line({"variant", "reading", "tokens", "perplexity"});
  for (const StretchRow& row : study.stretch->rows) {
    for (size_t i = 0; i < row.perplexity.size(); ++i) {
      text += csv_line(
          {study.label_of(row.variant), row.reading, exact(study.stretch->lengths[i]), exact(row.perplexity[i])});
    }
  }
  return text;
}

std::string passkey_csv(const Study& study) {
  std::string text = csv_line({"variant", "tokens", "depth", "found"});
  for (const PasskeyRow& row : study.stretch->passkey) {
    for (size_t i = 0; i < row.depths.size(); ++i) {
      text += csv_line({study.label_of(row.variant), exact(row.length), exact(row.depths[i]), exact(row.accuracy[i])});
    }
  }
  return text;
}

}  // namespace

std::string figure_csv(const Study& study, const std::string& id) {
  if (id == "curves") return curves_csv(study);
  if (id == "effects") return effects_csv(study);
  if (id == "cost") return cost_csv(study);
  if (id == "scaling") return scaling_csv(study);
  return id == "passkey" ? passkey_csv(study) : extrapolation_csv(study);
}

}  // namespace lamina::lab::report
