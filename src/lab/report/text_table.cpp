#include <algorithm>
#include <cstdio>

#include "lamina/lab/report/columns.h"
#include "lamina/lab/run/results.h"

namespace lamina::lab {
namespace {

std::string format(const char* pattern, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, pattern, value);
  return buffer;
}

/// Pads columns to their widest cell. The first column is left-aligned, the others right-aligned.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size(), 0);
  const auto columns = [](const std::string& text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(),
                                             [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  };
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - columns(row[i]), ' ');
      line += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string text_cell(const report::Measure& measure, report::Style style) {
  if (!measure.mean) return "-";
  return report::written(*measure.mean, style) +
         (measure.spread ? " " + report::written_spread(*measure.spread, style) : "");
}

/// Difference, p and mark, for the judged measure only.
std::vector<std::string> text_comparison(const report::Measure& measure, report::Style style) {
  return {measure.difference ? report::written_difference(*measure.difference, style) : "-",
          !measure.p           ? "-"
          : *measure.p < 0.001 ? "<0.001"
                               : format("%.3f", *measure.p),
          measure.mark.empty() ? "-" : measure.mark};
}

std::vector<std::vector<std::string>> rows_of(const report::Study& study, Columns set) {
  const std::vector<report::Column> columns = report::columns_of(study, set);
  std::vector<std::vector<std::string>> rows{{"variant"}};
  for (const report::Column& column : columns) {
    rows[0].push_back(column.title);
    if (column.key != study.quality()) continue;
    for (const std::string& part : {"to " + study.compared_with, std::string("p"), std::string("verdict")}) {
      rows[0].push_back(part);
    }
  }
  for (const report::Variant& variant : study.variants) {
    if (variant.cannot) continue;
    std::vector<std::string> row{variant.name};
    for (const report::Column& column : columns) {
      const report::Measure measure = report::measure_of(variant, column.key);
      row.push_back(text_cell(measure, column.style));
      if (column.key != study.quality()) continue;
      for (const std::string& part : text_comparison(measure, column.style)) row.push_back(part);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string results_table(const Results& results, Columns columns) {
  const std::vector<std::vector<std::string>> rows =
      rows_of(report::read_study(results_json(results), "results"), columns);
  std::string text = aligned(rows) + "\n";
  for (const VariantResult& variant : results.variants) {
    if (variant.adjusted) {
      text += str(variant.variant.name, ": ", variant.adjusted->field, " ", variant.adjusted->from, " → ",
                  variant.adjusted->to, format(", %+.2f %% of the base remain\n", 100 * variant.adjusted->difference));
    }
    if (variant.highest_stable_learning_rate) {
      text += str(variant.variant.name, ": highest stable learning rate ",
                  format("%.3g", *variant.highest_stable_learning_rate), "\n");
    }
  }
  for (const Finding& finding : results.findings) {
    text += "- " + finding.text + (finding.verdict.empty() ? "" : " " + finding.claim + ": " + finding.verdict) + "\n";
  }
  return text;
}

}  // namespace lamina::lab
