#include "lamina/arch/json.h"
#include "lamina/arch/picture.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/error.h"
#include "lamina/lab/report/assets.h"
#include "lamina/lab/report/chart_data.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/escape.h"
#include "lamina/lab/report/figures.h"
#include "lamina/lab/report/html_tables.h"
#include "lamina/lab/report/report.h"

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

std::string head(const Study& study) {
  const std::string metric = study.lower_is_better() ? "loss, lower is better" : "accuracy, higher is better";
  const std::string matching = study.matching.empty() || study.matching == "none" ? "none" : "equal " + study.matching;
  return str("<header><div class=\"top\"><p class=\"kicker\">Lamina study", study.mode.empty() ? "" : " · ",
             html(study.mode),
             "</p><button type=\"button\" id=\"theme\" aria-label=\"Switch between light and dark\">◐ "
             "<span>Theme</span></button></div>\n<h1>",
             html(study.name), "</h1>\n",
             study.question.empty() ? "" : str("<p class=\"question\">", html(study.question), "</p>\n"),
             study.complete ? "" : "<p class=\"notice\">This study is not complete: runs are still missing.</p>\n",
             "<dl class=\"facts\">", fact("Variants", str(study.variants.size())),
             fact("Seeds", str(study.most_seeds())), fact("Judged by", metric),
             fact("Base", study.base.empty() ? "" : study.label_of(study.base)), fact("Matched for", matching),
             fact("Target loss", study.target ? written(*study.target, Style::loss) : ""), "</dl></header>\n");
}

std::string verdict(const std::string& verdict) {
  if (verdict.empty()) return "";
  const char* kind = verdict == "holds" ? "holds" : verdict == "does not" ? "does-not" : "cannot-tell";
  const char* sign = verdict == "holds" ? "✓ " : verdict == "does not" ? "✗ " : "? ";
  return str("<span class=\"verdict ", kind, "\">", sign, verdict == "does not" ? "does not hold" : verdict, "</span>");
}

std::string findings_section(const Study& study) {
  std::string text = "<section id=\"findings\"><h2>Findings</h2>\n";
  if (study.findings.empty()) return text + "<p>None.</p></section>\n";
  text += "<ul class=\"findings\">\n";
  for (const Finding& finding : study.findings) {
    text += str(finding.verdict.empty() ? "<li class=\"noted\">" : "<li>", verdict(finding.verdict), "<div><p>",
                html(finding.text), "</p>",
                finding.claim.empty() ? "" : str("<p class=\"claim\">Claim: ", html(finding.claim), "</p>"),
                "</div></li>\n");
  }
  return text + "</ul></section>\n";
}

std::string figure(const Figure& shown, const std::string& numbers) {
  return str("<section id=\"", shown.id, "\"><h2>", html(shown.title), "</h2>\n<figure data-chart=\"", shown.id,
             "\"><div class=\"controls\"></div><div class=\"chart\" role=\"img\" aria-label=\"",
             html(shown.alternative), "\">", shown.svg, "</div><figcaption>", html(shown.caption),
             "<span class=\"picture-only\">", html(shown.picture_caption), "</span></figcaption></figure>\n",
             numbers.empty() ? "" : str("<details><summary>The numbers</summary>", numbers, "</details>\n"),
             "</section>\n");
}

std::string figures(const Study& study) {
  std::string text;
  for (const Figure& shown : figures_of(study)) {
    text += figure(shown, shown.id == "extrapolation" ? stretch_table(study)
                          : shown.id == "passkey"     ? passkey_table(study)
                                                      : "");
  }
  return text;
}

std::string diagram_image(const std::string& name, const std::string& svg) {
  return str("<img alt=\"Block diagram: ", html(name), "\" src=\"", data_address("image/svg+xml", svg), "\">");
}

/// Draws the architecture in parts, which a narrow screen stacks. Falls back to the file's own drawing if the
/// architecture cannot be read. Drawings are <img> elements, so they cannot run scripts or send requests.
std::string diagram(const Variant& variant) {
  std::string images;
  try {
    const arch::ArchSpec spec = arch::read_spec(variant.architecture, variant.name);
    for (const arch::Picture& part : arch::draw_parts(arch::resolve(spec, variant.name))) {
      images += diagram_image(str(variant.label, ", ", part.name), part.svg);
    }
  } catch (const Error&) {
    images = variant.diagram_svg.empty() ? "" : diagram_image(variant.label, variant.diagram_svg);
  }
  return images.empty()
             ? ""
             : scrolling("Block diagram of " + variant.label, str("<div class=\"parts\">", images, "</div>"));
}

std::string diagrams(const Study& study) {
  std::string text;
  for (const Variant& variant : study.variants) {
    if (variant.diagram_svg.empty() && variant.architecture.empty()) continue;
    text +=
        str("<details class=\"diagram\"", text.empty() ? " open" : "", "><summary>", html(variant.label), "</summary>");
    text += diagram(variant);
    if (!variant.architecture.empty()) {
      text +=
          str("<details><summary>Architecture as JSON</summary><pre>", html(variant.architecture), "</pre></details>");
    }
    text += "</details>\n";
  }
  return text.empty() ? "" : str("<section id=\"blocks\"><h2>Blocks</h2>\n", text, "</section>\n");
}

std::string repeat(const Study& study) {
  std::string text = "<section id=\"repeat\"><h2>Repeat it</h2>\n";
  if (!study.command.empty()) text += str("<pre class=\"command\">", html(study.command), "</pre>\n");
  text +=
      "<p>On the same machine, with the same version and number of threads, all numbers except times are "
      "bit-identical.</p>\n<dl class=\"facts\">";
  text += fact("Lamina", study.version);
  for (const auto& [name, value] : study.machine) text += fact(name, value);
  text += "</dl>\n";
  if (!study.description.empty()) {
    text += str("<details><summary>The exact description</summary><p><a download=\"study.json\" href=\"",
                data_address("application/json", study.description), "\">Save as study.json</a></p><pre>",
                html(study.description), "</pre></details>\n");
  }
  return text + "</section>\n";
}

std::string scripts(const Study& study) {
  std::string text;
  if (report_is_interactive()) {
    text += str("<script type=\"application/json\" id=\"chart-data\">", script_json(chart_data(study)), "</script>\n",
                "<script>", asset("charts.js"), "</script>\n");
  }
  return text + str("<script>", asset("page.js"), "</script>\n");
}

}  // namespace
}  // namespace report

bool report_is_interactive() { return !report::asset("charts.js").empty(); }

std::string report_html(const std::string& results, const std::string& name) {
  using namespace report;
  const report::Study study = read_study(results, name);
  return str(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>",
      html(study.name), " · Lamina study</title>\n<style>", asset("report.css"), "</style>\n</head>\n<body>\n<main>\n",
      head(study), findings_section(study), "<section id=\"results\"><h2>Results</h2>\n", results_table(study),
      "</section>\n", figures(study), diagrams(study), repeat(study), "</main>\n<footer>Made by lamina ",
      html(study.version), " from results.json. This file needs nothing else.</footer>\n", scripts(study),
      "</body>\n</html>\n");
}

}  // namespace lamina::lab
