#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lamina/lab/advise/advise.h"

namespace lamina::lab {

/// A file of presets/advice, embedded in the library by cmake/EmbedPresets.cmake.
struct AdviceFile {
  std::string_view name;
  std::string_view text;
};
std::span<const AdviceFile> advice_files();

/// The values that the conditions of rules can test.
struct Facts {
  std::string first;
  bool extrapolate = false;
  bool generate = false;
  double context = 0;
  double parameters = 0;
  std::optional<double> tokens_per_parameter;
};

/// A rule of the decision guide: its conditions, and the changes that it makes.
struct Rule {
  Reason said;
  std::vector<std::pair<std::string, std::string>> when;  ///< (name, value as JSON); all conditions must hold
  std::string base;                                       ///< preset to start from; may be empty
  std::string style;                                      ///< name of this model style, without a size
  std::vector<std::string> assignments;
  std::optional<double> d_ff_ratio;           ///< d_ff / d_model
  std::optional<double> queries_per_kv_head;  ///< 0: one KV head for all queries
  bool holds(const Facts& facts) const;
};

/// The decision guide: its rules and texts.
struct Guide {
  std::vector<Rule> rules;
  std::map<std::string, Reason> sizing;  ///< keys: shape, vocabulary, data, memory
  std::string recipe;
  /// Translations of the remarks of `lamina plan`: subject → (subject, reason). Empty in English.
  std::map<std::string, std::pair<std::string, std::string>> plan;
  /// Words of what `lamina plan` found, with their translations, to be replaced in this order. Empty in English.
  std::vector<std::pair<std::string, std::string>> found;
};

/// Parses presets/advice/guide.json. Throws an Error that describes the problem.
Guide read_guide(std::string_view text);
/// Replaces the guide's texts by those of a translation (presets/advice/guide-zh.json). Throws an Error if the two
/// differ in rules, evidence or placeholders.
void translate(Guide& guide, std::string_view text);
const Guide& guide(Language language = Language::en);

}  // namespace lamina::lab
