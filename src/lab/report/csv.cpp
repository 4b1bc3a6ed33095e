#include <algorithm>
#include <set>

#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/escape.h"
#include "lamina/lab/report/report.h"
#include "lamina/lab/run/format.h"

namespace lamina::lab {
namespace report {
namespace {

std::string switches_of(const Variant& variant) {
  std::string text;
  for (const std::string& item : variant.switches) text += (text.empty() ? "" : " ") + item;
  return text;
}

}  // namespace

std::string exact(const Number& value) {
  if (!value) return "";
  // Uses the shortest text that parses to the same number.
  for (int digits = 1; digits < 17; ++digits) {
    const std::string shorter = printed("%.*g", digits, *value);
    if (std::stod(shorter) == *value) return shorter;
  }
  return printed("%.17g", *value);
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += (&field == fields.data() ? "" : ",") + csv(field);
  return line + "\r\n";
}

}  // namespace report

std::string report_csv(const std::string& results, const std::string& name, Columns set) {
  using namespace report;
  const report::Study study = read_study(results, name);
  const std::vector<Column> columns = columns_of(study, set);
  std::vector<std::string> head{"variant", "label", "base", "seeds", "switches", "cannot"};
  // The column name, for example "_difference_to_base", contains the reference of the judged measure.
  std::string difference = "_difference_to_" + study.compared_with;
  std::replace(difference.begin(), difference.end(), ' ', '_');
  for (const Column& column : columns) {
    for (const char* part : {"", "_spread"}) head.push_back(column.key + part);
    if (column.key != study.quality()) continue;
    for (const std::string& part : {difference, std::string("_p"), std::string("_mark")}) {
      head.push_back(column.key + part);
    }
  }
  std::string text = csv_line(head);
  for (const report::Variant& variant : study.variants) {
    std::vector<std::string> line{variant.name,
                                  variant.label,
                                  variant.name == study.base ? "yes" : "no",
                                  str(variant.runs.size()),
                                  switches_of(variant),
                                  variant.cannot.value_or("")};
    for (const Column& column : columns) {
      const Measure measure = measure_of(variant, column.key);
      for (const Number& value : {measure.mean, measure.spread}) line.push_back(exact(value));
      if (column.key != study.quality()) continue;
      for (const Number& value : {measure.difference, measure.p}) line.push_back(exact(value));
      line.push_back(measure.mark);
    }
    text += csv_line(line);
  }
  return text;
}

std::string runs_csv(const std::string& results, const std::string& name) {
  using namespace report;
  const report::Study study = read_study(results, name);
  std::set<std::string> keys;
  for (const report::Variant& variant : study.variants) {
    for (const Run& run : variant.runs) {
      for (const auto& [key, value] : run.values) keys.insert(key);
    }
  }
  std::vector<std::string> head{"variant", "seed", "diverged", "stopped_early"};
  head.insert(head.end(), keys.begin(), keys.end());
  std::string text = csv_line(head);
  for (const report::Variant& variant : study.variants) {
    for (const Run& run : variant.runs) {
      std::vector<std::string> line{variant.name, str(run.seed), run.diverged ? "yes" : "no",
                                    run.stopped_early ? "yes" : "no"};
      for (const std::string& key : keys) {
        const auto found = run.values.find(key);
        line.push_back(found == run.values.end() ? "" : exact(found->second));
      }
      text += csv_line(line);
    }
  }
  return text;
}

}  // namespace lamina::lab
