#include <algorithm>
#include <cmath>

#include "lamina/arch/json.h"
#include "lamina/arch/picture.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/error.h"
#include "lamina/lab/report/assets.h"
#include "lamina/lab/report/chart_data.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/effects.h"
#include "lamina/lab/report/escape.h"
#include "lamina/lab/report/figures.h"
#include "lamina/lab/report/html_tables.h"
#include "lamina/lab/report/report.h"
#include "lamina/lab/run/format.h"

namespace lamina::lab {
namespace report {
namespace {

std::string_view asset(std::string_view name) {
  for (const ReportAsset& each : report_assets()) {
    if (each.name == name) return each.text;
  }
  return {};
}

std::string fact(const std::string& name, const std::string& value) {
  return value.empty() ? "" : str("<div><dt>", html(name), "</dt><dd>", html(value), "</dd></div>");
}

/// Running text as HTML. A number and its % stay on one line.
std::string flowing(const std::string& text) {
  std::string kept = html(text);
  for (size_t at = kept.find(" %"); at != std::string::npos; at = kept.find(" %", at)) kept.replace(at, 1, "\u00a0");
  return kept;
}

/// A verdict with its sign; the CSS class gives the colour. "at our size: …" looks like the verdict itself.
std::string verdict_badge(const Study& study, const std::string& verdict) {
  if (verdict.empty()) return "";
  const char* kind = verdict.ends_with("holds") ? "holds" : verdict.ends_with("does not") ? "does-not" : "cannot-tell";
  const char* sign = verdict.ends_with("holds") ? "✓ " : verdict.ends_with("does not") ? "✗ " : "? ";
  return str("<span class=\"verdict ", kind, "\">", sign, html(written_verdict(study, verdict)), "</span>");
}

std::string answer(const Study& study) {
  const Answer answer = answer_of(study);
  if (answer.text.empty()) return "";
  std::string kind = answer.mark.empty() ? "cannot tell" : answer.mark;
  std::replace(kind.begin(), kind.end(), ' ', '-');
  return str("<div id=\"answer\" class=\"", kind, "\"><p class=\"answer-label\">", html(study.words()("answer.title")),
             "</p><p class=\"answer\">", flowing(answer.text), "</p>",
             answer.rest.empty() ? "" : str("<p class=\"answer-rest\">", html(answer.rest), "</p>"), "</div>\n");
}

/// "1e+15 training FLOPs per run, 412 to 500 updates".
std::string stated_budget(const Study& study) {
  Number least = study.steps;
  Number most = study.steps;
  for (const Variant& variant : study.variants) {
    const Number steps = variant.steps ? variant.steps : study.steps;
    if (steps && (!least || *steps < *least)) least = steps;
    if (steps && (!most || *steps > *most)) most = steps;
  }
  const Words& words = study.words();
  std::string updates = least ? written(*least, Style::count) : "?";
  if (least && *least != *most) {
    updates = words("interval", {{"low", updates}, {"high", written(*most, Style::count)}});
  }
  const bool round = study.budget->amount < 1e9 && study.budget->amount == std::floor(study.budget->amount);
  return words("head.budget.stated",
               {{"amount", round ? written(study.budget->amount, Style::count) : printed("%.3g", study.budget->amount)},
                {"unit", words.or_else("head.budget." + study.budget->unit, study.budget->unit)},
                {"steps", updates}});
}

/// "5,000 updates, 81,920,000 tokens per run"; empty if unknown or if runs differ in tokens.
std::string budget(const Study& study) {
  if (study.budget && study.budget->unit != "updates") return stated_budget(study);
  if (!study.steps) return "";
  Number tokens;
  for (const Variant& variant : study.variants) {
    for (const Run& run : variant.runs) {
      if (!run.tokens_per_step || (tokens && *tokens != *run.tokens_per_step)) return "";
      tokens = run.tokens_per_step;
    }
  }
  if (!tokens) return "";
  return study.words()("head.budget.value", {{"steps", written(*study.steps, Style::count)},
                                             {"tokens", written(*study.steps * *tokens, Style::count)}});
}

std::string head(const Study& study) {
  const Words& words = study.words();
  const std::string metric = words(study.lower_is_better() ? "head.loss" : "head.accuracy");
  const bool matched = !study.matching.empty() && study.matching != "none";
  const bool tuned = std::any_of(study.variants.begin(), study.variants.end(),
                                 [](const Variant& variant) { return !variant.tuned.empty(); });
  return str(
      "<header><div class=\"top\"><p class=\"kicker\">", html(words("head.kicker")), study.mode.empty() ? "" : " · ",
      html(study.mode),
      "</p><div class=\"tools\"><button type=\"button\" "
      "id=\"slides\" aria-pressed=\"false\" hidden aria-label=\"",
      html(words("head.slides")), "\">▭ <span>", html(words("head.slides")),
      "</span></button><button type=\"button\" id=\"print\" hidden aria-label=\"", html(words("head.print")),
      "\">▤ <span>", html(words("head.print")), "</span></button><button type=\"button\" id=\"theme\" aria-label=\"",
      html(words("head.switch")), "\">◐ <span>", html(words("head.theme")), "</span></button></div></div>\n<h1>",
      html(study.name), "</h1>\n",
      study.question.empty() ? "" : str("<p class=\"question\">", html(study.question), "</p>\n"),
      study.complete ? "" : str("<p class=\"notice\">", html(words("head.incomplete")), "</p>\n"), answer(study),
      "<dl class=\"facts\">", fact(words("head.variants"), str(study.variants.size())),
      fact(words("head.seeds"), str(study.most_seeds())), fact(words("head.judged_by"), metric),
      fact(words("head.base"), study.base.empty() ? "" : study.label_of(study.base)),
      fact(words("head.matched"), words.or_else("head.matched." + (matched ? study.matching : "none"), study.matching)),
      fact(words("head.budget"), budget(study)), fact(words("head.tuned"), tuned ? words("head.tuned.value") : ""),
      fact(words("head.margin"), study.margin ? "±" + written(*study.margin, Style::percent) : ""),
      fact(words("head.target"), study.target ? written(*study.target, Style::loss) : ""), "</dl></header>\n");
}

std::string claims_section(const Study& study) {
  const std::vector<ClaimRow> rows = claims_of(study);
  if (rows.empty()) return "";
  const Words& words = study.words();
  std::string text = str("<section id=\"claims\"><h2>", html(words("claims.title")), "</h2>\n<p class=\"note\">",
                         html(words("claims.note")), "</p>\n");
  std::string table = str("<table><caption>", html(words("claims.title")), "</caption><thead><tr>");
  for (const char* key : {"claims.claim", "claims.claimed", "claims.measured", "claims.verdict"}) {
    table += str("<th scope=\"col\">", html(words(key)), "</th>");
  }
  table += "</tr></thead><tbody>\n";
  for (const ClaimRow& row : rows) {
    table += str("<tr><th scope=\"row\">", html(row.claim), "</th><td class=\"claimed\">",
                 row.claimed.empty() ? "–" : html(row.claimed), "</td><td class=\"measured\">",
                 row.measured.empty() ? "–" : html(row.measured), "</td><td>", verdict_badge(study, row.verdict),
                 "</td></tr>\n");
  }
  return text + scrolling(study, words("claims.title"), table + "</tbody></table>") + "</section>\n";
}

std::string notes_section(const Study& study) {
  const std::vector<std::string> notes = notes_of(study);
  if (notes.empty()) return "";
  std::string text =
      str("<section id=\"notes\"><h2>", html(study.words()("notes.title")), "</h2>\n<ul class=\"findings\">\n");
  for (const std::string& note : notes) text += str("<li class=\"noted\"><p>", html(note), "</p></li>\n");
  return text + "</ul></section>\n";
}

/// Buttons that save a figure. The CSV file is a link, which works without scripts.
std::string save_tools(const Study& study, const Figure& shown) {
  const Words& words = study.words();
  std::string text =
      str("<div class=\"save\" role=\"group\" aria-label=\"", html(words("save.label", {{"figure", shown.title}})),
          "\"><span>", html(words("save.word")), "</span>");
  for (const char* type : {"svg", "png"}) {
    text += str("<button type=\"button\" data-save=\"", type, "\" hidden>", type == std::string("svg") ? "SVG" : "PNG",
                "</button>");
  }
  return text + str("<a download=\"", shown.id, ".csv\" href=\"",
                    data_address("text/csv;charset=utf-8", figure_csv(study, shown.id)), "\">CSV</a></div>");
}

std::string figure(const Study& study, const Figure& shown, const std::string& numbers) {
  return str(
      "<section id=\"", shown.id, "\" class=\"figure\"><h2>", html(shown.title), "</h2>\n<figure data-chart=\"",
      shown.id, "\" data-title=\"", html(shown.title),
      "\"><div class=\"controls\"></div><div class=\"chart\" role=\"img\" aria-label=\"", html(shown.alternative),
      "\">", shown.svg, "</div><figcaption>", flowing(shown.caption), "<span class=\"picture-only\">",
      html(shown.picture_caption), "</span></figcaption>", save_tools(study, shown), "</figure>\n",
      numbers.empty()
          ? ""
          : str("<details><summary>", html(study.words()("figure.numbers")), "</summary>", numbers, "</details>\n"),
      "</section>\n");
}

std::string figures(const Study& study, const std::vector<std::string>& ids) {
  std::string text;
  const std::vector<Figure> all = figures_of(study);
  for (const std::string& id : ids) {
    for (const Figure& shown : all) {
      if (shown.id != id) continue;
      text += figure(study, shown,
                     id == "extrapolation" ? stretch_table(study)
                     : id == "passkey"     ? passkey_table(study)
                     : id == "effects"     ? effects_table(study)
                     : id == "scaling"     ? scaling_table(study)
                                           : "");
    }
  }
  return text;
}

std::string diagram_image(const Study& study, const std::string& name, const std::string& svg) {
  return str("<img alt=\"", html(study.words()("blocks.diagram")), ": ", html(name), "\" src=\"",
             data_address("image/svg+xml", svg), "\">");
}

/// Draws the architecture in several parts, which a narrow screen stacks. If the architecture cannot be read, uses the
/// drawing in the file. Drawings are <img> elements, so they cannot run scripts or send requests.
std::string diagram(const Study& study, const Variant& variant) {
  std::string images;
  try {
    const arch::ArchSpec spec = arch::read_spec(variant.architecture, variant.name);
    for (const arch::Picture& part : arch::draw_parts(arch::resolve(spec, variant.name))) {
      images += diagram_image(study, str(variant.label, ", ", part.name), part.svg);
    }
  } catch (const Error&) {
    images = variant.diagram_svg.empty() ? "" : diagram_image(study, variant.label, variant.diagram_svg);
  }
  return images.empty() ? ""
                        : scrolling(study, str(study.words()("blocks.diagram"), ": ", variant.label),
                                    str("<div class=\"parts\">", images, "</div>"));
}

std::string diagrams(const Study& study) {
  std::string text;
  for (const Variant& variant : study.variants) {
    if (variant.diagram_svg.empty() && variant.architecture.empty()) continue;
    text +=
        str("<details class=\"diagram\"", text.empty() ? " open" : "", "><summary>", html(variant.label), "</summary>");
    text += diagram(study, variant);
    if (!variant.architecture.empty()) {
      text += str("<details><summary>", html(study.words()("blocks.json")), "</summary><pre>",
                  html(variant.architecture), "</pre></details>");
    }
    text += "</details>\n";
  }
  return text.empty()
             ? ""
             : str("<section id=\"blocks\"><h2>", html(study.words()("blocks.title")), "</h2>\n", text, "</section>\n");
}

std::string repeat(const Study& study) {
  const Words& words = study.words();
  std::string text = str("<section id=\"repeat\"><h2>", html(words("repeat.title")), "</h2>\n");
  if (!study.command.empty()) text += str("<pre class=\"command\">", html(study.command), "</pre>\n");
  text += str("<p>", html(words("repeat.bits")), "</p>\n<dl class=\"facts\">");
  text += fact("Lamina", study.version);
  for (const auto& [name, value] : study.machine) text += fact(name, value);
  text += "</dl>\n";
  if (!study.description.empty()) {
    text += str("<details><summary>", html(words("repeat.description")),
                "</summary><p><a download=\"study.json\" href=\"", data_address("application/json", study.description),
                "\">", html(words("repeat.save")), "</a></p><pre>", html(study.description), "</pre></details>\n");
  }
  return text + "</section>\n";
}

/// Whether the study is about lengths beyond the training length, so that their figures come first.
bool lengths_first(const Study& study) { return study.mode == "stretch"; }

std::string scripts(const Study& study) {
  std::string text;
  if (report_is_interactive()) {
    text += str("<script type=\"application/json\" id=\"chart-data\">", script_json(chart_data(study)), "</script>\n",
                "<script>", asset("charts.js"), "</script>\n");
  }
  return text + str("<script>", asset("page.js"), "</script>\n<script>", asset("save.js"), "</script>\n");
}

}  // namespace
}  // namespace report

bool report_is_interactive() { return !report::asset("charts.js").empty(); }

std::string report_html(const std::string& results, const std::string& name, Language language) {
  using namespace report;
  const report::Study study = read_study(results, name, language);
  const Words& words = study.words();
  return str("<!DOCTYPE html>\n<html lang=\"", words("html.lang"),
             "\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<meta name=\"color-scheme\" content=\"light dark\">\n<meta http-equiv=\"Content-Security-Policy\" "
             "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
             "<link rel=\"icon\" href=\"data:,\">\n<title>",
             html(study.name), " · ", html(words("head.kicker")), "</title>\n<style>", asset("report.css"),
             "</style>\n</head>\n<body>\n<main>\n", head(study), figures(study, {"effects"}), claims_section(study),
             lengths_first(study) ? figures(study, {"extrapolation", "passkey"}) : "",
             figures(study, {"curves", "scaling", "cost"}), "<section id=\"results\"><h2>",
             html(words("results.title")), "</h2>\n", results_table(study), "</section>\n",
             lengths_first(study) ? "" : figures(study, {"extrapolation", "passkey"}), notes_section(study),
             diagrams(study), repeat(study), "</main>\n<footer>", html(words("footer", {{"version", study.version}})),
             "</footer>\n", scripts(study), "</body>\n</html>\n");
}

}  // namespace lamina::lab
