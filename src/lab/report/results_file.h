#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lamina/lab/words/words.h"

// The validated contents of a results file. These types have their own namespace, because the code that writes results
// files has types with the same names.
namespace lamina::lab::report {

/// A number in the file. null in the file, which means not measured, is empty here.
using Number = std::optional<double>;

/// A curve over training steps.
struct Series {
  std::vector<double> step;
  std::vector<Number> loss;     ///< as many as `step`; empty if not finite
  std::vector<Number> seconds;  ///< training time up to each step; as many as `step`, or empty if not recorded
};

/// A run of a variant with one seed.
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

/// A measure of a variant, as mean over its runs, with its comparison to the reference.
struct Measure {
  Number mean;
  Number spread;      ///< standard deviation over seeds
  Number difference;  ///< difference to the reference (Study::compared_with)
  /// P of the test that decided; only for the judged measure, so that each comparison has one p.
  Number p;
  std::string mark;        ///< only for the judged measure: better, worse, no difference, cannot tell, base
  Number ci95_half_width;  ///< half-width of the 95 % confidence interval of the difference
  Number p_alone;          ///< p without correction for multiple comparisons
  Number margin;           ///< largest absolute difference that counts as equivalent
  Number seeds_needed;     ///< if undecided: number of seeds that would find a difference of the margin (power 0.8)
  Number runs;             ///< number of runs with this measure
};

/// The change of a width that matched the size of a variant.
struct Adjustment {
  std::string field;
  double from = 0;
  double to = 0;
  Number difference;  ///< remaining relative difference in size to the base
};

/// A variant of the study, with its runs and measures.
struct Variant {
  std::string name;
  std::string label;
  std::vector<std::string> switches;  ///< "path=value" changes, except those that only unset a value
  std::string diagram_svg;
  std::string architecture;             ///< JSON
  std::map<std::string, Number> costs;  ///< parameters, flops_per_token, kv_bytes_per_token, …
  std::optional<Adjustment> adjusted;
  Number steps;       ///< updates of a run, if it has another number than the study
  std::string tuned;  ///< recipe changes chosen by tuning; empty without tuning
  std::optional<std::string> cannot;
  std::vector<Run> runs;
  std::map<std::string, Measure> summary;
};

/// A sentence about the results.
struct Finding {
  std::string kind;  ///< comparison, claim, scaling or note
  std::string text;
  std::string verdict;  ///< "holds" or "does not" (with or without "at our size: " before it), "cannot tell", or empty
  std::string claim;
};

/// A published statement and the sizes for which it was made, from the study's description.
struct Claim {
  std::string text;
  std::string variant;
  std::string against;  ///< empty: the base
  std::string metric;
  double from = 0;
  Number to;
};

/// What every run may spend.
struct Budget {
  std::string unit;  ///< updates, tokens, flops or seconds
  double amount = 0;
};

/// The loss of one run of a given size.
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

/// The scaling laws of a study.
struct Scaling {
  std::string against;  ///< parameters or compute
  std::vector<ScalingGroup> groups;
};

/// Perplexity of a variant at each length, for one way of reading.
struct StretchRow {
  std::string variant;
  std::string reading;  ///< non-overlapping or sliding
  std::vector<Number> perplexity;
  std::string cannot;
};

/// Share of passkeys that a variant finds at one length, per depth.
struct PasskeyRow {
  std::string variant;
  double length = 0;
  std::vector<double> depths;
  std::vector<Number> accuracy;
};

/// Measurements of a study of mode stretch.
struct Stretch {
  double trained_length = 0;
  std::vector<double> lengths;
  std::vector<StretchRow> rows;
  std::vector<PasskeyRow> passkey;
};

/// The contents of a results file.
struct Study {
  std::string name;
  std::string question;
  std::string mode;
  std::string description;  ///< JSON, indented
  std::string command;
  std::string version;
  bool complete = true;                                      ///< whether every run is finished
  std::vector<std::pair<std::string, std::string>> machine;  ///< (name, value) for display
  std::string metric;                                        ///< loss or accuracy
  Number target;
  std::string base;
  std::string compared_with = "base";  ///< what differences and p refer to: "base" or "previous rung"
  std::string matching;
  std::vector<Variant> variants;
  std::vector<Finding> findings;
  std::vector<Claim> claims;
  std::optional<Scaling> scaling;
  std::optional<Stretch> stretch;
  Number margin;         ///< largest relative difference that counts as equivalent
  Number equal_seconds;  ///< time budget of the measures "in equal time"
  Number steps;          ///< updates of a run; of the base if variants have their own
  std::optional<Budget> budget;
  bool judged_again = false;  ///< whether verdicts were recomputed, because the file is older than their rules
  Language language = Language::en;

  bool lower_is_better() const { return metric != "accuracy"; }
  /// The key of the measure by which variants are judged: best_loss or accuracy.
  std::string quality() const { return lower_is_better() ? "best_loss" : "accuracy"; }
  /// The label of the variant with this name. If there is none, as for stretched checkpoints, the name itself.
  std::string label_of(const std::string& variant) const;
  size_t most_seeds() const;
  const Words& words() const { return words_of(language); }
  const Variant* find(const std::string& variant) const;
  /// The variant with which this one is compared. Null for the base.
  const Variant* reference_of(const Variant& variant) const;
};

/// Parses and validates a results file. Throws an Error with the position of the problem.
Study read_study(const std::string& text, const std::string& name, Language language = Language::en);

/// Computes differences, intervals, p values and marks from the runs, by the rules in docs/reference/verdicts.md. For
/// files that were written before these rules existed; they have no margin.
void judge_again(Study& study);

}  // namespace lamina::lab::report
