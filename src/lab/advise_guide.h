#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lamina/lab/advise.h"

namespace lamina::lab {

/// A file of presets/advice, held inside the library; made by cmake/EmbedPresets.cmake.
struct AdviceFile {
  std::string_view name;
  std::string_view text;
};
std::span<const AdviceFile> advice_files();

/// What rules may ask for.
struct Facts {
  std::string first;
  bool extrapolate = false;
  bool generate = false;
  double context = 0;
  double parameters = 0;
  std::optional<double> tokens_per_parameter;
};

/// A rule of the decision guide: what must hold, and what it changes then.
struct Rule {
  Reason said;
  std::vector<std::pair<std::string, std::string>> when;  ///< (name, value as JSON), all must hold
  std::string base;                                       ///< a preset to begin with; may be empty
  std::string style;                                      ///< what a model of that kind is called at any size
  std::vector<std::string> assignments;
  std::optional<double> d_ff_ratio;           ///< d_ff / d_model
  std::optional<double> queries_per_kv_head;  ///< 0: one key-value head for all
  bool holds(const Facts& facts) const;
};

struct Guide {
  std::vector<Rule> rules;
  std::map<std::string, Reason> sizing;  ///< shape, vocabulary, data, memory
  std::string recipe;
};

/// presets/advice/guide.json; an Error names what is wrong in it.
Guide read_guide(std::string_view text);
const Guide& guide();

}  // namespace lamina::lab
