#include "lamina/lab/report/html_tables.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/effects.h"
#include "lamina/lab/report/escape.h"
#include "lamina/lab/run/format.h"

namespace lamina::lab::report {
namespace {

std::string mark_class(const std::string& mark) {
  std::string name = mark;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

/// Tooltip: "95 % confidence interval of the difference: ±0.0042".
std::string details(const Study& study, const Measure& measure, Style style) {
  std::string text;
  if (measure.ci95_half_width) {
    text = study.words()("table.interval", {{"half", written_spread(*measure.ci95_half_width, style)}});
  }
  return text.empty() ? "" : str(" title=\"", html(text), "\"");
}

/// A table cell. `runs` is the variant's number of runs; a measure with fewer values says so. `main`: see is_main().
std::string cell(const Study& study, const Measure& measure, Style style, size_t runs, bool main) {
  const char* more = main ? "" : " more";
  if (!measure.mean)
    return str("<td class=\"none", more, "\"><span aria-label=\"", html(study.words()("table.not_measured")),
               "\">–</span></td>");
  std::string text = str("<td class=\"number", more, "\" data-value=\"", printed("%.17g", *measure.mean),
                         "\"><span class=\"mean\">", html(written(*measure.mean, style)), "</span>");
  if (measure.spread) text += str(" <span class=\"spread\">", html(written_spread(*measure.spread, style)), "</span>");
  if (measure.runs && *measure.runs < static_cast<double>(runs)) {
    text += str(" <span class=\"p\">",
                html(study.words()("table.some_runs", {{"some", str(*measure.runs)}, {"runs", str(runs)}})), "</span>");
  }
  if (measure.mark.empty() || measure.mark == "base") return text + "</td>";  // the row already names the base
  text += str("<div class=\"against\"", details(study, measure, style), ">");
  if (measure.difference) {
    text += str("<span>", html(written_difference(*measure.difference, style)), "</span> ");
  }
  text +=
      str("<span class=\"mark ", mark_class(measure.mark), "\">", html(written_mark(study, measure.mark)), "</span>");
  if (measure.p) text += str(" <span class=\"p\">", html(written_p(*measure.p)), "</span>");
  return text + "</div></td>";
}

/// Shortens "layers[*].pattern[*].ffn.kind=moe" to "ffn.kind=moe". The tooltip has the full path.
std::string shortened(const std::string& assignment) {
  const size_t path = assignment.find("].pattern[");
  const size_t end = path == std::string::npos ? path : assignment.find("].", path + 2);
  const bool is_path = assignment.starts_with("layers[") && end != std::string::npos && end < assignment.find('=');
  return is_path ? assignment.substr(end + 2) : assignment;
}

/// Escapes a path and allows line breaks after its separators.
std::string breakable(const std::string& path) {
  std::string text;
  std::string word;
  for (const char c : path) {
    word += c;
    if (std::string_view(".=/,").find(c) == std::string_view::npos) continue;
    text += html(word) + "<wbr>";
    word.clear();
  }
  return text + html(word);
}

bool is_reset(const std::string& assignment) { return assignment.ends_with("=null"); }

/// The changes that characterise a variant. Leaves out resets to a default ("norm=null"), which only make room for
/// other changes, and the changes of earlier steps in a ladder.
std::vector<std::string> own_switches(const Study& study, const Variant& variant) {
  std::vector<std::string> own = variant.switches;
  const size_t place = static_cast<size_t>(&variant - study.variants.data());
  if (study.mode == "ladder" && place > 0) {
    const std::vector<std::string>& before = study.variants[place - 1].switches;
    const bool on_top = own.size() >= before.size() && std::equal(before.begin(), before.end(), own.begin());
    if (on_top) own.erase(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(before.size()));
  }
  if (!std::all_of(own.begin(), own.end(), is_reset)) std::erase_if(own, is_reset);
  return own;
}

std::string switch_line(const Study& study, const std::string& assignment) {
  const std::string path = shortened(assignment);
  const std::string shown = is_reset(assignment)
                                ? breakable(path.substr(0, path.size() - 5)) + " " + html(study.words()("table.unset"))
                                : breakable(path);
  return str("<code title=\"", html(assignment), "\">", study.mode == "ladder" ? "+ " : "", shown, "</code>");
}

std::string variant_cell(const Study& study, const Variant& variant) {
  std::string text = str("<th scope=\"row\" data-value=\"", html(variant.label), "\"><span class=\"label\">",
                         html(variant.label), "</span>");
  if (variant.name == study.base)
    text += str(" <span class=\"mark base\">", html(study.words()("mark.base")), "</span>");
  for (const std::string& item : own_switches(study, variant)) text += switch_line(study, item);
  const std::string adjusted = written_adjustment(study, variant);
  if (!adjusted.empty()) text += str("<small>", html(study.words()("table.matched")), ": ", html(adjusted), "</small>");
  if (!variant.tuned.empty())
    text += str("<small>", html(study.words()("table.tuned")), ": ", html(variant.tuned), "</small>");
  if (variant.cannot)
    text +=
        str("<small class=\"cannot\">", html(study.words()("table.cannot")), ": ", html(*variant.cannot), "</small>");
  return text + "</th>";
}

/// Whether the column is visible at first. A button shows the other columns.
bool is_main(const Study& study, const std::string& key) {
  constexpr std::array<std::string_view, 5> kMain{"final_loss", "perplexity", "tokens_per_second", "peak_memory_bytes",
                                                  "parameters"};
  return key == study.quality() || std::find(kMain.begin(), kMain.end(), key) != kMain.end();
}

std::string sortable_head(const std::string& title, const std::string& about, bool main) {
  return str("<th scope=\"col\"", main ? "" : " class=\"more\"",
             about.empty() ? "" : str(" title=\"", html(about), "\""), "><button type=\"button\">", html(title),
             "</button></th>");
}

constexpr const char* kBody = "</tr></thead><tbody>\n";

std::string table_head(const std::string& caption, const std::vector<std::string>& titles) {
  std::string text = str("<table><caption>", html(caption), "</caption><thead><tr>");
  for (const std::string& title : titles) text += str("<th scope=\"col\">", html(title), "</th>");
  return text;
}

}  // namespace

std::string scrolling(const Study& study, const std::string& name, const std::string& content) {
  return str("<div class=\"scroll-frame\"><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"",
             html(name), "\">", content, "</div><p class=\"scroll-hint\" aria-hidden=\"true\">",
             html(study.words()("table.scroll")), " →</p></div>\n");
}

std::string results_table(const Study& study) {
  const std::vector<Column> columns = columns_of(study);
  const Words& words = study.words();
  std::string text =
      str("<table class=\"sortable\" id=\"variants\" aria-describedby=\"variants-note\"><caption>",
          html(words("table.all")), "</caption><thead><tr>", sortable_head(words("table.variant"), "", true));
  for (const Column& column : columns) text += sortable_head(column.title, column.about, is_main(study, column.key));
  text += "</tr></thead><tbody>\n";
  for (const Variant& variant : study.variants) {
    text += variant.name == study.base ? "<tr class=\"base-row\">" : "<tr>";
    text += variant_cell(study, variant);
    for (const Column& column : columns) {
      text +=
          cell(study, measure_of(variant, column.key), column.style, variant.runs.size(), is_main(study, column.key));
    }
    text += "</tr>\n";
  }
  return str(
      "<div class=\"table-head\"><p class=\"note\" id=\"variants-note\">",
      html(words("table.note", {{"reference", words("reference." + study.compared_with)}})),
      "</p><button type=\"button\" id=\"columns\" aria-controls=\"variants\" aria-expanded=\"true\" data-fewer=\"",
      html(words("table.fewer")), "\" hidden>", html(words("table.more", {{"measures", str(columns.size())}})),
      "</button></div>\n", scrolling(study, words("table.all"), text + "</tbody></table>"));
}

std::string stretch_table(const Study& study) {
  const Stretch& stretch = *study.stretch;
  const Words& words = study.words();
  std::string text = table_head(words("table.perplexity"), {words("table.variant"), words("table.reading")});
  for (const double length : stretch.lengths) text += str("<th scope=\"col\">", written(length, Style::count), "</th>");
  text += kBody;
  for (const StretchRow& row : stretch.rows) {
    text += str("<tr><th scope=\"row\">", html(study.label_of(row.variant)),
                row.cannot.empty() ? "" : str("<small class=\"cannot\">", html(row.cannot), "</small>"), "</th><td>",
                html(words.or_else("reading." + row.reading, row.reading)), "</td>");
    for (const Number& value : row.perplexity) {
      text += value ? str("<td>", html(written(*value, Style::plain)), "</td>") : "<td class=\"none\">–</td>";
    }
    text += "</tr>\n";
  }
  return scrolling(study, words("table.perplexity"), text + "</tbody></table>");
}

std::string passkey_table(const Study& study) {
  const Words& words = study.words();
  std::string text =
      table_head(words("table.passkeys"), {words("table.variant"), words("table.length"), words("table.depth")}) +
      kBody;
  for (const PasskeyRow& row : study.stretch->passkey) {
    text += str("<tr><th scope=\"row\">", html(study.label_of(row.variant)), "</th><td>",
                written(row.length, Style::count), "</td><td>");
    for (size_t i = 0; i < row.depths.size(); ++i) {
      text += str(i == 0 ? "" : ", ", written(row.depths[i], Style::percent), ": ",
                  row.accuracy[i] ? written(*row.accuracy[i], Style::percent) : "–");
    }
    text += "</td></tr>\n";
  }
  return scrolling(study, words("table.passkeys"), text + "</tbody></table>");
}

std::string effects_table(const Study& study) {
  const Words& words = study.words();
  std::string text = table_head(words("figure.effects.title"),
                                {words("table.variant"), words("reference." + study.compared_with),
                                 words("table.difference"), "p", words("claims.verdict"), words("table.seeds")}) +
                     kBody;
  for (const Effect& effect : effects_of(study)) {
    text += str("<tr><th scope=\"row\">", html(effect.label), "</th><td>", html(effect.reference), "</td><td>",
                html(written_effect(study, effect)), "</td><td>", effect.p ? html(written_p(*effect.p)) : "–",
                "</td><td><span class=\"mark ", mark_class(effect.mark), "\">", html(written_mark(study, effect.mark)),
                "</span></td><td>", effect.seeds,
                effect.seeds_needed
                    ? html(words("table.seeds_needed", {{"seeds", written(*effect.seeds_needed, Style::count)}}))
                    : "",
                "</td></tr>\n");
  }
  return scrolling(study, words("figure.effects.title"), text + "</tbody></table>");
}

std::string scaling_table(const Study& study) {
  const Words& words = study.words();
  std::string text = table_head(words("figure.scaling.title"),
                                {words("scaling.group"), words("scaling.formula"), words("scaling.exponent"),
                                 words("scaling.sizes"), words("table.seeds")}) +
                     kBody;
  for (const ScalingGroup& group : study.scaling->groups) {
    if (!group.fitted) continue;
    text += str(
        "<tr><th scope=\"row\">", html(group.name),
        group.determined
            ? ""
            : str("<small class=\"cannot\">", html(words("scaling.undetermined", {{"group", group.name}})), "</small>"),
        "</th><td>", html(written_law(*study.scaling, group)), "</td><td>", html(written_exponent(study, group)),
        "</td><td>", group.sizes, "</td><td>", group.seeds, "</td></tr>\n");
  }
  return scrolling(study, words("figure.scaling.title"), text + "</tbody></table>");
}

}  // namespace lamina::lab::report
