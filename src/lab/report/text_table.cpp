#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/effects.h"
#include "lamina/lab/run/format.h"
#include "lamina/plot/canvas.h"

namespace lamina::lab {
namespace report {
namespace {

/// Formats a table. Columns are as wide as their widest cell. The first column is left-aligned, the others are
/// right-aligned.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], plot::text_columns(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - plot::text_columns(row[i]), ' ');
      line += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string text_cell(const Measure& measure, Style style) {
  if (!measure.mean) return "-";
  return written(*measure.mean, style) + (measure.spread ? " " + written_spread(*measure.spread, style) : "");
}

/// The difference with half the width of its 95 % confidence interval, p and mark. Only for the judged measure.
std::vector<std::string> text_comparison(const Measure& measure, Style style) {
  const std::string half = measure.ci95_half_width ? " " + written_spread(*measure.ci95_half_width, style) : "";
  return {measure.difference ? written_difference(*measure.difference, style) + half : "-",
          !measure.p           ? "-"
          : *measure.p < 0.001 ? "<0.001"
                               : fixed(*measure.p, 3),
          measure.mark.empty() ? "-" : measure.mark};
}

std::vector<std::vector<std::string>> rows_of(const Study& study, Columns set) {
  const std::vector<Column> columns = columns_of(study, set);
  std::vector<std::vector<std::string>> rows{{"variant"}};
  for (const Column& column : columns) {
    rows[0].push_back(column.title);
    if (column.key != study.quality()) continue;
    for (const std::string& part : {"to " + study.compared_with, std::string("p"), std::string("verdict")}) {
      rows[0].push_back(part);
    }
  }
  for (const Variant& variant : study.variants) {
    if (variant.cannot) continue;
    std::vector<std::string> row{variant.name};
    for (const Column& column : columns) {
      const Measure measure = measure_of(variant, column.key);
      row.push_back(text_cell(measure, column.style));
      if (column.key != study.quality()) continue;
      for (const std::string& part : text_comparison(measure, column.style)) row.push_back(part);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string perplexity_text(const Number& perplexity) {
  if (!perplexity) return printed("%10s", "-");
  return *perplexity < 1000 ? printed("%10.3f", *perplexity) : printed("%10.2e", *perplexity);
}

std::string percent_text(const Number& share) { return share ? printed("%10.0f", 100 * *share) : printed("%10s", "-"); }

std::string padded(const std::string& name) { return printed("%-30s", name.c_str()); }

std::string head_line(const std::string& title, const Stretch& stretch) {
  std::string text = padded(title);
  for (const double length : stretch.lengths) text += printed("%10.0f", length);
  return text + "\n";
}

/// The mean over all depths. Empty if a depth is missing.
Number mean_of_depths(const PasskeyRow& row) {
  if (row.accuracy.empty()) return {};
  double sum = 0;
  for (const Number& share : row.accuracy) {
    if (!share) return {};
    sum += *share;
  }
  return sum / static_cast<double>(row.accuracy.size());
}

/// A table of passkey accuracy. The rows of a variant are adjacent, one per length.
std::string passkey_text(const Study& study) {
  const std::vector<PasskeyRow>& rows = study.stretch->passkey;
  std::string means = "\n" + head_line("passkeys found, percent", *study.stretch);
  std::string depths = "\n" + padded("by depth, longest length");
  for (const double depth : rows.back().depths) depths += printed("%10.2f", depth);
  depths += "\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i].variant != rows[i - 1].variant) means += padded(study.label_of(rows[i].variant));
    means += percent_text(mean_of_depths(rows[i]));
    if (i + 1 < rows.size() && rows[i + 1].variant == rows[i].variant) continue;
    means += "\n";
    if (!mean_of_depths(rows[i])) continue;
    depths += padded(study.label_of(rows[i].variant));
    for (const Number& share : rows[i].accuracy) depths += percent_text(share);
    depths += "\n";
  }
  return means + depths;
}

/// Tables of perplexity and passkeys by length.
std::string stretch_text(const Study& study) {
  std::string text;
  std::vector<std::string> readings;
  for (const StretchRow& row : study.stretch->rows) {
    if (std::find(readings.begin(), readings.end(), row.reading) == readings.end()) readings.push_back(row.reading);
  }
  for (const std::string& reading : readings) {
    text += (text.empty() ? "" : "\n") + head_line("perplexity, " + reading, *study.stretch);
    for (const StretchRow& row : study.stretch->rows) {
      if (row.reading != reading) continue;
      text += padded(study.label_of(row.variant));
      for (const Number& perplexity : row.perplexity) text += perplexity_text(perplexity);
      text += row.cannot.empty() ? "\n" : "  " + row.cannot + "\n";
    }
  }
  return study.stretch->passkey.empty() ? text : text + passkey_text(study);
}

}  // namespace
}  // namespace report

std::string report_text(const std::string& results, const std::string& name, Columns columns) {
  const report::Study study = report::read_study(results, name);
  if (study.stretch) return report::stretch_text(study);
  const report::Answer answer = report::answer_of(study);
  std::string text = answer.text.empty() ? "" : answer.text + (answer.rest.empty() ? "" : " " + answer.rest) + "\n\n";
  text += report::aligned(report::rows_of(study, columns)) + "\n";
  for (const report::Variant& variant : study.variants) {
    const std::string adjusted = report::written_adjustment(study, variant);
    if (!adjusted.empty()) text += str(variant.name, ": matched ", adjusted, "\n");
    if (!variant.tuned.empty()) text += str(variant.name, ": tuned ", variant.tuned, "\n");
    const report::Number rate = report::measure_of(variant, "highest_stable_learning_rate").mean;
    if (rate) text += str(variant.name, ": highest stable learning rate ", printed("%.3g", *rate), "\n");
  }
  for (const report::Finding& finding : study.findings) {
    text += "- " + finding.text + (finding.verdict.empty() ? "" : " " + finding.claim + ": " + finding.verdict) + "\n";
  }
  return text;
}

}  // namespace lamina::lab
