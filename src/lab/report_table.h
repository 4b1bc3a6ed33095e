#pragma once

#include <string>
#include <vector>

#include "lamina/lab/report.h"
#include "lamina/lab/report_results.h"

namespace lamina::lab::report {

/// How a measure's numbers are written.
enum class Style { loss, percent, count, rate, bytes, work, seconds, plain };

struct Column {
  std::string key;
  std::string title;
  std::string about;  ///< one sentence
  Style style = Style::plain;
  bool shown = false;  ///< by default; the others on demand
};

/// What a measure of this key is called and how it is written; a key not known here is its own title.
Column column_of(const std::string& key);

std::string written(double value, Style style);
/// "±0.0042", with the decimals of the measure.
std::string written_spread(double value, Style style);
/// "−0.0310": always with a sign.
std::string written_difference(double value, Style style);
/// "p = 0.004", "p < 0.001".
std::string written_p(double p);

/// Of a variant: what the study says, or what its runs or its costs say where it says nothing.
Measure measure_of(const Variant& variant, const std::string& key);

/// The columns in which at least one variant has a number, the judged one first and always `shown`.
std::vector<Column> columns_of(const Study& study);
/// Only those that are `shown`, or all.
std::vector<Column> columns_of(const Study& study, Columns columns);

/// "d_ff 1536 → 1408 (+0.21 % parameters)"; empty where nothing was changed.
std::string written_adjustment(const Study& study, const Variant& variant);

}  // namespace lamina::lab::report
