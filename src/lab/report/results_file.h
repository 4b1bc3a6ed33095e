#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

// Validated contents of a results file. The types have their own namespace, because the code that writes these files
// has types of the same names.
namespace lamina::lab::report {

/// null in the file (not measured) is empty here.
using Number = std::optional<double>;

struct Series {
  std::vector<double> step;
  std::vector<Number> loss;  ///< same size as `step`; empty if not finite
};

struct Run {
  int64_t seed = 0;
  std::string folder;                    ///< name in the study's runs/; empty in older files
  std::map<std::string, Number> values;  ///< all numbers of the run: best_loss, tokens_per_second, …
  bool diverged = false;
  bool stopped_early = false;
  Series curve;
  Series evaluations;
};

struct Measure {
  Number mean;
  Number spread;           ///< standard deviation over seeds
  Number difference;       ///< to the reference (Study::compared_with)
  Number p;                ///< of the test that decided; judged measure only, so that each comparison has one p
  std::string mark;        ///< judged measure only: better, worse, no difference, cannot tell, base
  Number ci95_half_width;  ///< half-width of the 95 % confidence interval of the difference
  Number p_alone;          ///< p without correction for multiple comparisons
  Number runs;             ///< number of runs with this measure
};

struct Adjustment {
  std::string field;
  double from = 0;
  double to = 0;
  Number difference;  ///< remaining relative difference to the base
};

struct Variant {
  std::string name;
  std::string label;
  std::vector<std::string> switches;  ///< "path=value" changes, without those that only unset a value
  std::string diagram_svg;
  std::string architecture;             ///< JSON
  std::map<std::string, Number> costs;  ///< parameters, flops_per_token, kv_bytes_per_token, …
  std::optional<Adjustment> adjusted;
  std::string tuned;  ///< recipe changes chosen by tuning; empty without tuning
  std::optional<std::string> cannot;
  std::vector<Run> runs;
  std::map<std::string, Measure> summary;
};

struct Finding {
  std::string text;
  std::string verdict;  ///< "holds" or "does not", both also after "at our size: ", "cannot tell", or empty
  std::string claim;
};

struct StretchRow {
  std::string variant;
  std::string reading;  ///< non-overlapping or sliding
  std::vector<Number> perplexity;
  std::string cannot;
};

struct PasskeyRow {
  std::string variant;
  double length = 0;
  std::vector<double> depths;
  std::vector<Number> accuracy;
};

struct Stretch {
  double trained_length = 0;
  std::vector<double> lengths;
  std::vector<StretchRow> rows;
  std::vector<PasskeyRow> passkey;
};

struct Study {
  std::string name;
  std::string question;
  std::string mode;
  std::string description;  ///< JSON, indented
  std::string command;
  std::string version;
  bool complete = true;                                      ///< every run is finished
  std::vector<std::pair<std::string, std::string>> machine;  ///< (name, value) for display
  std::string metric;                                        ///< loss or accuracy
  Number target;
  std::string base;
  std::string compared_with = "base";  ///< reference of differences and p: "base" or "previous rung"
  std::string matching;
  std::vector<Variant> variants;
  std::vector<Finding> findings;
  std::optional<Stretch> stretch;

  bool lower_is_better() const { return metric != "accuracy"; }
  /// Key of the measure that variants are judged by: best_loss or accuracy.
  std::string quality() const { return lower_is_better() ? "best_loss" : "accuracy"; }
  /// Label of the variant with this name, or the name itself if there is none, as for stretched checkpoints.
  std::string label_of(const std::string& variant) const;
  size_t most_seeds() const;
};

/// Throws Error with the position of the problem.
Study read_study(const std::string& text, const std::string& name);

}  // namespace lamina::lab::report
