#pragma once

#include <string>
#include <vector>

#include "lamina/lab/report/report.h"
#include "lamina/lab/report/results_file.h"

namespace lamina::lab::report {

/// The number format of a measure.
enum class Style { loss, percent, count, rate, bytes, work, seconds, plain };

/// A column of the tables.
struct Column {
  std::string key;
  std::string title;
  std::string about;  ///< one sentence
  Style style = Style::plain;
  bool shown = false;  ///< shown by default; others only on demand
};

/// Title (in the study's language) and format of a measure. The title of an unknown key is the key.
Column column_of(const Study& study, const std::string& key);

std::string written(double value, Style style);
/// "±0.0042", with the measure's number of decimals.
std::string written_spread(double value, Style style);
/// "−0.0310", always with a sign.
std::string written_difference(double value, Style style);
/// "p = 0.004", "p < 0.001".
std::string written_p(double p);

/// A number with all its digits, for a CSV file. Empty if not measured.
std::string exact(const Number& value);

/// A variant's measure: from the study's summary, otherwise from its runs or costs.
Measure measure_of(const Variant& variant, const std::string& key);

/// The columns that have a value for at least one variant. The judged measure comes first and is always `shown`.
std::vector<Column> columns_of(const Study& study);
/// Only the `shown` columns, or all.
std::vector<Column> columns_of(const Study& study, Columns columns);

/// For example "d_ff 1536 → 1408 (+0.21 % parameters)". Empty if matching changed nothing.
std::string written_adjustment(const Study& study, const Variant& variant);

}  // namespace lamina::lab::report
