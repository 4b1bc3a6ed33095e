#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

// What a results file says, checked. It has a namespace of its own because the engine that writes such files has types
// for the same things.
namespace lamina::lab::report {

/// What could not be measured is null in the file and empty here.
using Number = std::optional<double>;

struct Series {
  std::vector<double> step;
  std::vector<Number> loss;  ///< as many; empty where it was not finite
};

struct Run {
  int64_t seed = 0;
  std::string folder;                    ///< its name in the study's runs/; empty in older files
  std::map<std::string, Number> values;  ///< best_loss, tokens_per_second, …: every number of the run
  bool diverged = false;
  bool stopped_early = false;
  Series curve;
  Series evaluations;
};

struct Measure {
  Number mean;
  Number spread;      ///< standard deviation over seeds
  Number difference;  ///< to the reference (Study::compared_with)
  Number p;           ///< of the judged measure only: one p for one comparison
  std::string mark;   ///< better, worse, no difference, cannot tell, base; empty but for the judged measure
  Number reach;       ///< half of the 95 % interval of the difference
  Number p_alone;     ///< as if this were the only comparison
  Number runs;        ///< that have the number
};

struct Adjustment {
  std::string field;
  double from = 0;
  double to = 0;
  Number difference;  ///< what remains to the base, relative
};

struct Variant {
  std::string name;
  std::string label;
  std::vector<std::string> switches;  ///< "path=value" that choose something; those that unset a value are left out
  std::string diagram_svg;
  std::string architecture;             ///< JSON
  std::map<std::string, Number> costs;  ///< parameters, flops_per_token, kv_bytes_per_token, …
  std::optional<Adjustment> adjusted;
  std::optional<std::string> cannot;
  std::vector<Run> runs;
  std::map<std::string, Measure> summary;
};

struct Finding {
  std::string text;
  std::string verdict;  ///< holds, does not, each also after "at our size: ", cannot tell, or empty
  std::string claim;
};

struct StretchRow {
  std::string variant;
  std::string reading;  ///< non-overlapping, sliding
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
  bool complete = true;                                      ///< every run is done
  std::vector<std::pair<std::string, std::string>> machine;  ///< as shown
  std::string metric;                                        ///< loss, accuracy
  Number target;
  std::string base;
  std::string compared_with = "base";  ///< what differences and p are to: base or previous rung
  std::string matching;
  std::vector<Variant> variants;
  std::vector<Finding> findings;
  std::optional<Stretch> stretch;

  bool lower_is_better() const { return metric != "accuracy"; }
  /// What variants are judged by: best_loss or accuracy.
  std::string quality() const { return lower_is_better() ? "best_loss" : "accuracy"; }
  /// The label of a variant of this name; the name itself where there is none, as stretched checkpoints have.
  std::string label_of(const std::string& variant) const;
  size_t most_seeds() const;
};

/// Throws Error with the place of what is wrong.
Study read_study(const std::string& text, const std::string& name);

}  // namespace lamina::lab::report
