#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/escape.h"
#include "lamina/lab/report/figures.h"
#include "lamina/lab/report/report.h"

namespace lamina::lab {
namespace report {
namespace {

std::string cell(const Measure& measure, Style style) {
  if (!measure.mean) return "–";
  return written(*measure.mean, style) + (measure.spread ? " " + written_spread(*measure.spread, style) : "");
}

/// "−0.0310, better, p = 0.004".
std::string comparison(const Measure& measure, Style style) {
  if (measure.mark.empty() || measure.mark == "base") return "–";
  std::string text;
  if (measure.difference) text = written_difference(*measure.difference, style) + ", ";
  text += "**" + measure.mark + "**";
  return measure.p ? text + ", " + written_p(*measure.p) : text;
}

std::string table(const Study& study, Columns set) {
  const std::vector<Column> columns = columns_of(study, set);
  std::string text = "| Variant |";
  std::string rule = "|---|";
  for (const Column& column : columns) {
    const bool judged = column.key == study.quality();
    text += " " + markdown(column.title) + " |" + (judged ? " Compared with the " + study.compared_with + " |" : "");
    rule += judged ? "---:|---:|" : "---:|";
  }
  text += "\n" + rule + "\n";
  for (const Variant& variant : study.variants) {
    text += "| " + markdown(variant.label) + (variant.name == study.base ? " (base)" : "");
    const std::string adjusted = written_adjustment(study, variant);
    if (!adjusted.empty()) text += "<br>matched: " + markdown(adjusted);
    if (!variant.tuned.empty()) text += "<br>tuned: " + markdown(variant.tuned);
    if (variant.cannot) text += "<br>cannot run: " + markdown(*variant.cannot);
    text += " |";
    for (const Column& column : columns) {
      const Measure measure = measure_of(variant, column.key);
      text += " " + cell(measure, column.style) + " |";
      if (column.key == study.quality()) text += " " + comparison(measure, column.style) + " |";
    }
    text += "\n";
  }
  return text;
}

std::string findings_text(const Study& study) {
  std::string text;
  for (const Finding& finding : study.findings) {
    text += "- ";
    if (!finding.verdict.empty()) text += "**" + finding.verdict + "**: ";
    text += markdown(finding.text);
    if (!finding.claim.empty()) text += " (claim: " + markdown(finding.claim) + ")";
    text += "\n";
  }
  return text.empty() ? "" : "## Findings\n" + text + "\n";
}

/// Code block with a fence longer than any run of backticks in the text, so that the text cannot close it.
std::string fenced(const std::string& text, const std::string& language) {
  size_t longest = 2;
  size_t now = 0;
  for (const char c : text) {
    now = c == '`' ? now + 1 : 0;
    longest = std::max(longest, now);
  }
  const std::string fence(longest + 1, '`');
  return str(fence, language, "\n", text, "\n", fence, "\n");
}

std::string stretch(const Study& study) {
  if (!study.stretch || study.stretch->rows.empty()) return "";
  std::string text = "| Variant | reading |";
  std::string rule = "|---|---|";
  for (const double length : study.stretch->lengths) {
    text += " " + written(length, Style::count) + " |";
    rule += "---:|";
  }
  text += "\n" + rule + "\n";
  for (const StretchRow& row : study.stretch->rows) {
    text += str("| ", markdown(study.label_of(row.variant)), row.cannot.empty() ? "" : "<br>" + markdown(row.cannot),
                " | ", markdown(row.reading), " |");
    for (const Number& value : row.perplexity) text += " " + (value ? written(*value, Style::plain) : "–") + " |";
    text += "\n";
  }
  return text + "\n";
}

std::string machine(const Study& study) {
  std::string text = "Lamina " + markdown(study.version);
  for (const auto& [name, value] : study.machine) text += str("; ", markdown(name), " ", markdown(value));
  return text + ".\n";
}

}  // namespace
}  // namespace report

std::string report_markdown(const std::string& results, const std::string& name, Columns columns) {
  using namespace report;
  const report::Study study = read_study(results, name);
  std::string text =
      str("# ", markdown(study.name), "\n\n", markdown(study.question), "\n\n",
          study.complete ? "" : "**This study is not complete: runs are still missing.**\n\n", findings_text(study),
          "## Results\nMean over seeds ± standard deviation.\n\n", table(study, columns), "\n");
  for (const Figure& figure : figures_of(study)) {
    text += str("## ", figure.title, "\n![", markdown(figure.title), "](", figure.id, ".svg)\n\n",
                markdown(figure.caption + figure.picture_caption), "\n\n",
                figure.id == "extrapolation" ? stretch(study) : "");
  }
  text += "## Repeat it\n";
  if (!study.command.empty()) text += fenced(study.command, "sh");
  text += "\n" + machine(study);
  if (!study.description.empty()) {
    text += str("\n<details><summary>The exact description</summary>\n\n", fenced(study.description, "json"),
                "\n</details>\n");
  }
  return text;
}

}  // namespace lamina::lab
