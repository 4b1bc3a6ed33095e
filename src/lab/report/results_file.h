#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lamina/lab/words/words.h"

// Validated contents of a results file. The types have their own namespace, because the code that writes these files
// has types of the same names.
namespace lamina::lab::report {

/// null in the file (not measured) is empty here.
using Number = std::optional<double>;

struct Series {
  std::vector<double> step;
  std::vector<Number> loss;     ///< same size as `step`; empty if not finite
  std::vector<Number> seconds;  ///< training time up to each step; same size as `step`, or empty if not recorded
};

struct Run {
  int64_t seed = 0;
  std::string folder;                    ///< name in the study's runs/; empty in older files
  std::map<std::string, Number> values;  ///< all numbers of the run: best_loss, tokens_per_second, …
  bool diverged = false;
  bool stopped_early = false;
  Number tokens_per_step;
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
  Number margin;           ///< largest absolute difference that counts as none
  Number seeds_needed;     ///< if it cannot tell: seeds that find a difference of the margin (power 0.8)
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
  std::string kind;  ///< comparison, claim, scaling or note
  std::string text;
  std::string verdict;  ///< "holds" or "does not", both also after "at our size: ", "cannot tell", or empty
  std::string claim;
};

/// A published statement and the sizes at which it was made, from the study's description.
struct Claim {
  std::string text;
  std::string variant;
  std::string against;  ///< empty: the base
  std::string metric;
  double from = 0;
  Number to;
};

struct ScalingPoint {
  double size = 0;
  int64_t seed = 0;
  double loss = 0;
};

/// loss = irreducible + coefficient · size^−exponent, fitted to a group of variants.
struct ScalingGroup {
  std::string name;
  std::vector<ScalingPoint> points;
  bool fitted = false;  ///< false: too few sizes; the values below are then 0
  double irreducible = 0;
  double coefficient = 0;
  double exponent = 0;
  Number exponent_low;
  Number exponent_high;
  bool determined = true;
  double sizes = 0;
  double seeds = 0;
  std::vector<double> curve_size;
  std::vector<double> curve_loss;
  std::vector<double> curve_low;  ///< empty with one seed
  std::vector<double> curve_high;
};

struct Scaling {
  std::string against;  ///< parameters or compute
  std::vector<ScalingGroup> groups;
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
  std::vector<Claim> claims;
  std::optional<Scaling> scaling;
  std::optional<Stretch> stretch;
  Number margin;              ///< relative margin of equivalence
  Number equal_seconds;       ///< budget of the measures "in equal time"
  Number steps;               ///< updates of a run
  bool judged_again = false;  ///< verdicts were computed again, because the file is older than their rules
  Language language = Language::en;

  bool lower_is_better() const { return metric != "accuracy"; }
  /// Key of the measure that variants are judged by: best_loss or accuracy.
  std::string quality() const { return lower_is_better() ? "best_loss" : "accuracy"; }
  /// Label of the variant with this name, or the name itself if there is none, as for stretched checkpoints.
  std::string label_of(const std::string& variant) const;
  size_t most_seeds() const;
  const Words& words() const { return words_of(language); }
  const Variant* find(const std::string& variant) const;
  /// The variant that this one is compared with; null for the base.
  const Variant* reference_of(const Variant& variant) const;
};

/// Throws Error with the position of the problem.
Study read_study(const std::string& text, const std::string& name, Language language = Language::en);

/// Computes differences, intervals, p and marks from the runs, by the rules of docs/reference/verdicts.md. For files
/// that were written before these rules: they have no margin.
void judge_again(Study& study);

}  // namespace lamina::lab::report
