#include "lamina/lab/report/columns.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lamina/arch/plan.h"
#include "lamina/base/error.h"
#include "lamina/lab/run/format.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab::report {
namespace {

struct KnownColumn {
  const char* key;
  Style style;
  bool shown = false;
};

// In the order of the table. Titles and explanations are in presets/words (column.KEY, about.KEY).
constexpr KnownColumn kColumns[] = {
    {"best_loss", Style::loss, true},
    {"final_loss", Style::loss, true},
    {"best_step", Style::count},
    {"best_loss_equal_time", Style::loss},
    {"final_loss_equal_time", Style::loss},
    {"best_loss_equal_tokens", Style::loss},
    {"final_loss_equal_tokens", Style::loss},
    {"perplexity", Style::loss, true},
    {"bits_per_byte", Style::loss},
    {"accuracy", Style::percent},
    {"accuracy_long", Style::percent},
    {"steps_to_target", Style::count},
    {"seconds_to_target", Style::seconds},
    {"tokens_per_second", Style::rate, true},
    {"decode_tokens_per_second", Style::rate},
    {"peak_memory_bytes", Style::bytes, true},
    {"parameters", Style::count, true},
    {"flops_per_token", Style::work},
    {"training_flops", Style::work},
    {"kv_bytes_per_token", Style::bytes},
    {"spikes", Style::plain},
    {"gradient_outliers", Style::plain},
    {"diverged", Style::plain},
    {"highest_stable_learning_rate", Style::plain},
};

/// Uses a real minus sign, which is as wide as a plus.
std::string with_minus(std::string text) {
  if (text.starts_with("-")) text.replace(0, 1, "−");
  return text;
}

std::string grouped(double value) {
  return std::abs(value) < 9e15 ? arch::with_commas(std::llround(value)) : printed("%.*g", 6, value);
}

std::string time_of(double seconds) {
  if (seconds < 120) return printed("%.*f s", seconds < 10 ? 2 : 1, seconds);
  if (seconds < 7200) return printed("%.*f min", 1, seconds / 60);
  return printed("%.*f h", 1, seconds / 3600);
}

std::string trimmed(std::string text) {
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

/// Mean and sample standard deviation (n − 1) over the runs that have the value.
Measure over_runs(const Variant& variant, const std::string& key) {
  std::vector<double> values;
  for (const Run& run : variant.runs) {
    const auto found = run.values.find(key);
    if (found != run.values.end() && found->second) values.push_back(*found->second);
    if (key == "diverged") values.push_back(run.diverged ? 1 : 0);
  }
  if (values.empty()) return {};
  Measure measure;
  if (key == "diverged") {
    measure.mean = std::accumulate(values.begin(), values.end(), 0.0);
    return measure;
  }
  measure.mean = mean_of(values);
  measure.spread = deviation_of(values);
  return measure;
}

}  // namespace

Column column_of(const Study& study, const std::string& key) {
  for (const KnownColumn& known : kColumns) {
    if (key != known.key) continue;
    return {key, study.words()("column." + key), study.words()("about." + key), known.style, known.shown};
  }
  std::string title = key;
  std::replace(title.begin(), title.end(), '_', ' ');
  return {key, title, "", Style::plain, false};
}

std::string written(double value, Style style) {
  switch (style) {
    case Style::loss: return with_minus(fixed(value, 4));
    case Style::percent: return with_minus(printed("%.*f %%", 1, 100 * value));
    case Style::count: return with_minus(grouped(value));
    case Style::rate: return std::abs(value) >= 100 ? with_minus(grouped(value)) : with_minus(fixed(value, 1));
    case Style::bytes: return trimmed(arch::short_bytes(value));
    case Style::work: return trimmed(arch::short_number(value));
    case Style::seconds: return time_of(value);
    case Style::plain: break;
  }
  return with_minus(printed("%.*g", 4, value));
}

std::string written_spread(double value, Style style) { return "±" + written(value, style); }

std::string written_difference(double value, Style style) {
  const std::string size = written(std::abs(value), style);
  // Whether it rounds to zero at the shown precision.
  const bool nothing = size.find_first_of("123456789") == std::string::npos;
  return (nothing ? "" : value < 0 ? "−" : "+") + size;
}

std::string written_p(double p) { return p < 0.001 ? "p < 0.001" : "p = " + fixed(p, p < 0.1 ? 3 : 2); }

Measure measure_of(const Variant& variant, const std::string& key) {
  if (const auto found = variant.summary.find(key); found != variant.summary.end()) return found->second;
  const auto cost = variant.costs.find(key);
  if (cost == variant.costs.end()) return over_runs(variant, key);
  Measure measure;
  measure.mean = cost->second;
  return measure;
}

std::vector<Column> columns_of(const Study& study) {
  std::vector<std::string> keys{study.quality()};
  const auto add = [&keys](const std::string& key) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  };
  for (const KnownColumn& known : kColumns) add(known.key);
  for (const Variant& variant : study.variants) {
    for (const auto& [key, measure] : variant.summary) add(key);
  }
  std::vector<Column> columns;
  for (const std::string& key : keys) {
    const bool present = std::any_of(study.variants.begin(), study.variants.end(), [&key](const Variant& variant) {
      return measure_of(variant, key).mean.has_value();
    });
    if (!present) continue;
    columns.push_back(column_of(study, key));
    columns.back().shown = columns.back().shown || key == study.quality();
  }
  return columns;
}

std::vector<Column> columns_of(const Study& study, Columns columns) {
  std::vector<Column> chosen = columns_of(study);
  if (columns == Columns::standard) std::erase_if(chosen, [](const Column& column) { return !column.shown; });
  return chosen;
}

std::string written_adjustment(const Study& study, const Variant& variant) {
  if (!variant.adjusted) return "";
  const Adjustment& adjusted = *variant.adjusted;
  std::string text = str(adjusted.field, " ", adjusted.from, " → ", adjusted.to);
  if (adjusted.difference) {
    const std::string what = study.words()(study.matching == "compute" ? "matched.compute" : "matched.parameters");
    text += str(" (", with_minus(printed("%+.*f", 2, 100 * *adjusted.difference)), " % ", what, ")");
  }
  return text;
}

}  // namespace lamina::lab::report
