#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/effects.h"
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

/// "−0.0310 (−0.0412 to −0.0208), better, p = 0.004": effect and interval first.
std::string comparison(const Study& study, const Variant& variant, const Measure& measure) {
  if (measure.mark.empty() || measure.mark == "base") return "–";
  std::string text;
  for (const Effect& effect : effects_of(study)) {
    if (effect.label == variant.label) text = written_effect(study, effect) + ", ";
  }
  text += "**" + written_mark(study, measure.mark) + "**";
  return measure.p ? text + ", " + written_p(*measure.p) : text;
}

std::string table(const Study& study, Columns set) {
  const std::vector<Column> columns = columns_of(study, set);
  const Words& words = study.words();
  std::string text = "| " + words("table.variant") + " |";
  std::string rule = "|---|";
  for (const Column& column : columns) {
    const bool judged = column.key == study.quality();
    text += " " + markdown(column.title) + " |" +
            (judged ? " " + words("table.compared", {{"reference", words("reference." + study.compared_with)}}) + " |"
                    : "");
    rule += judged ? "---:|---:|" : "---:|";
  }
  text += "\n" + rule + "\n";
  for (const Variant& variant : study.variants) {
    text += "| " + markdown(variant.label) + (variant.name == study.base ? " (" + words("mark.base") + ")" : "");
    const std::string adjusted = written_adjustment(study, variant);
    if (!adjusted.empty()) text += "<br>" + words("table.matched") + ": " + markdown(adjusted);
    if (!variant.tuned.empty()) text += "<br>" + words("table.tuned") + ": " + markdown(variant.tuned);
    if (variant.cannot) text += "<br>" + words("table.cannot") + ": " + markdown(*variant.cannot);
    text += " |";
    for (const Column& column : columns) {
      const Measure measure = measure_of(variant, column.key);
      text += " " + cell(measure, column.style) + " |";
      if (column.key == study.quality()) text += " " + comparison(study, variant, measure) + " |";
    }
    text += "\n";
  }
  return text;
}

std::string answer_text(const Study& study) {
  const Answer answer = answer_of(study);
  if (answer.text.empty()) return "";
  return str("**", markdown(answer.text), "**", answer.rest.empty() ? "" : " ", markdown(answer.rest), "\n\n");
}

std::string claims_text(const Study& study) {
  const std::vector<ClaimRow> rows = claims_of(study);
  if (rows.empty()) return "";
  const Words& words = study.words();
  std::string text = str("## ", words("claims.title"), "\n", words("claims.note"), "\n\n| ", words("claims.claim"),
                         " | ", words("claims.claimed"), " | ", words("claims.measured"), " | ",
                         words("claims.verdict"), " |\n|---|---|---|---|\n");
  for (const ClaimRow& row : rows) {
    text += str("| ", markdown(row.claim), " | ", row.claimed.empty() ? "–" : markdown(row.claimed), " | ",
                row.measured.empty() ? "–" : markdown(row.measured), " | **",
                markdown(written_verdict(study, row.verdict)), "** |\n");
  }
  return text + "\n";
}

std::string notes_text(const Study& study) {
  std::string text;
  for (const std::string& note : notes_of(study)) text += "- " + markdown(note) + "\n";
  return text.empty() ? "" : str("## ", study.words()("notes.title"), "\n", text, "\n");
}

/// A code block. Its fence is longer than any run of backticks in the text, so that the text cannot close it.
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
  const Words& words = study.words();
  std::string text = str("| ", words("table.variant"), " | ", words("table.reading"), " |");
  std::string rule = "|---|---|";
  for (const double length : study.stretch->lengths) {
    text += " " + written(length, Style::count) + " |";
    rule += "---:|";
  }
  text += "\n" + rule + "\n";
  for (const StretchRow& row : study.stretch->rows) {
    text += str("| ", markdown(study.label_of(row.variant)), row.cannot.empty() ? "" : "<br>" + markdown(row.cannot),
                " | ", markdown(words.or_else("reading." + row.reading, row.reading)), " |");
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

std::string report_markdown(const std::string& results, const std::string& name, Columns columns, Language language) {
  using namespace report;
  const report::Study study = read_study(results, name, language);
  const Words& words = study.words();
  std::string text = str("# ", markdown(study.name), "\n\n", markdown(study.question), "\n\n",
                         study.complete ? "" : "**" + words("head.incomplete") + "**\n\n", answer_text(study));
  const auto add = [&](const Figure& figure) {
    text += str("## ", figure.title, "\n![", markdown(figure.title), "](", figure.id, ".svg)\n\n",
                markdown(figure.caption + figure.picture_caption), "\n\n",
                figure.id == "extrapolation" ? stretch(study) : "");
  };
  const std::vector<Figure> figures = figures_of(study);
  for (const Figure& figure : figures) {
    if (figure.id == "effects") add(figure);
  }
  text += str(claims_text(study), "## ", words("results.title"), "\n", words("table.mean"), "\n\n",
              table(study, columns), "\n");
  for (const Figure& figure : figures) {
    if (figure.id != "effects") add(figure);
  }
  text += str(notes_text(study), "## ", words("repeat.title"), "\n");
  if (!study.command.empty()) text += fenced(study.command, "sh");
  text += "\n" + machine(study);
  if (!study.description.empty()) {
    text += str("\n<details><summary>", words("repeat.description"), "</summary>\n\n",
                fenced(study.description, "json"), "\n</details>\n");
  }
  return text;
}

}  // namespace lamina::lab
