#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lamina/arch/plan.h"
#include "lamina/lab/words/words.h"

namespace lamina::lab {

/// The requirements of a user who looks for an architecture. Empty fields impose none.
struct Question {
  std::optional<double> parameters;   ///< upper limit
  std::optional<double> memory;       ///< bytes on the machine that trains or generates
  std::optional<double> data;         ///< training tokens
  std::optional<int64_t> vocabulary;  ///< size of a given tokenizer
  int64_t context = 1024;             ///< tokens
  std::string first = "quality";      ///< priority: "quality", "balanced", "speed" or "simple"
  bool extrapolate = false;           ///< must handle sequences that are longer than in training
  bool generate = false;              ///< the memory limit is for inference, not for training
  Language language = Language::en;   ///< language of the reasons and of to_text()
};

/// A result that supports or contradicts a rule.
struct Evidence {
  std::string kind;     ///< "measured here" or "published"
  std::string text;     ///< the result, or the source
  std::string where;    ///< a study under docs/studies, or a URL; may be empty
  std::string verdict;  ///< "holds", "does not" or "cannot tell"; may be empty
};

/// A decision and its justification.
struct Reason {
  std::string subject;  ///< name of the rule
  std::string advice;
  std::string reason;
  std::vector<Evidence> evidence;
  /// The strongest kind of evidence, or "rule of thumb" if there is none.
  std::string how_sure() const;
};

/// An advised architecture, with the reasons for it.
struct Recommendation {
  Question question;
  std::string base;                      ///< preset name
  std::string name;                      ///< for example "LLaMA style, 4 layers of 128"
  std::vector<std::string> assignments;  ///< "path=value", as for --set
  std::vector<Reason> reasons;
  arch::Plan plan;                   ///< plan for one sequence of the context length
  int64_t batch = 1;                 ///< sequences per pass in the training command
  double memory_needed = 0;          ///< bytes needed to train with that batch (f32), or to generate (bf16)
  std::vector<std::string> similar;  ///< presets of similar size
  std::string recipe;                ///< recipe to begin with
  std::string file;                  ///< where to save architecture_file(), for the suggested commands; may be empty

  /// {"base": …, "about": …, "set": …}: an architecture file that every command accepts.
  std::string architecture_file() const;
};

/// Throws an Error if no architecture meets the requirements. The message suggests what to change.
Recommendation advise(const Question& question);

std::string to_text(const Recommendation& recommendation);
std::string to_json_text(const Recommendation& recommendation);

}  // namespace lamina::lab
