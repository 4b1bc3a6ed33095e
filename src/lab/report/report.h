#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lamina/lab/words/words.h"

namespace lamina::lab {

/// Selects the columns of text, Markdown and CSV tables. `standard`: the judged measure with its comparison,
/// perplexity, speed, memory and parameters; if it is a loss, both best and final. `all`: every measure.
enum class Columns : uint8_t { standard, all };

/// These functions build reports from the text of a results file (docs/reference/results-file.md). They validate the
/// text first; an Error says what is wrong and where. `name` is used in messages.
///
/// report_html returns a self-contained file with sortable tables and interactive charts in light and dark themes.
/// Without the chart library or JavaScript, it shows the same charts as images.
std::string report_html(const std::string& results, const std::string& name, Language language = Language::en);
/// Tables and findings as Markdown. The images are the files that write_report writes next to it.
std::string report_markdown(const std::string& results, const std::string& name, Columns columns = Columns::standard,
                            Language language = Language::en);
/// One line per variant, with mean and spread of each measure. The judged measure also has the difference to the
/// reference, its p value and its mark.
std::string report_csv(const std::string& results, const std::string& name, Columns columns = Columns::standard);
/// Tables and findings for a terminal. A study of mode stretch has tables by length.
std::string report_text(const std::string& results, const std::string& name, Columns columns = Columns::standard);
/// One line per run of each variant.
std::string runs_csv(const std::string& results, const std::string& name);

/// Writes report.html, report.md, report.csv, runs.csv and each chart as an SVG file with its data as a CSV file into
/// `folder`, which is created if needed. Returns the paths, report.html first.
std::vector<std::string> write_report(const std::string& results, const std::string& name, const std::string& folder,
                                      Columns columns = Columns::standard, Language language = Language::en);

/// Whether report_html() contains interactive charts; otherwise it contains images.
bool report_is_interactive();

}  // namespace lamina::lab
