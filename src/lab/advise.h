#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lamina/arch/plan.h"

namespace lamina::lab {

/// What a user knows before choosing an architecture. What is not said stays open.
struct Question {
  std::optional<double> parameters;   ///< at most
  std::optional<double> memory;       ///< bytes of the machine that trains, or that generates
  std::optional<double> data;         ///< tokens to learn from
  std::optional<int64_t> vocabulary;  ///< given by a tokenizer
  int64_t context = 1024;             ///< tokens
  std::string first = "quality";      ///< quality, speed, simple
  bool extrapolate = false;           ///< read beyond the context it was trained with
  bool generate = false;              ///< the memory must hold a model that only generates
};

struct Evidence {
  std::string kind;     ///< measured here, published
  std::string text;     ///< what was found, or who says so
  std::string where;    ///< a study under docs/studies, or a page; may be empty
  std::string verdict;  ///< holds, does not, cannot tell; may be empty
};

/// One choice, and why.
struct Reason {
  std::string subject;  ///< the rule's name
  std::string advice;
  std::string reason;
  std::vector<Evidence> evidence;
  /// The strongest kind among the evidence; "rule of thumb" where there is none.
  std::string how_sure() const;
};

struct Recommendation {
  Question question;
  std::string base;                      ///< a preset
  std::string name;                      ///< "LLaMA style, 4 layers of 128": the base's size is not the advised one
  std::vector<std::string> assignments;  ///< "path=value", as --set takes them
  std::vector<Reason> reasons;
  arch::Plan plan;                   ///< of one sequence of the context
  int64_t batch = 1;                 ///< sequences in a pass of the training command
  double memory_needed = 0;          ///< bytes, to train with that batch (f32) or to generate (bf16)
  std::vector<std::string> similar;  ///< presets of about this size
  std::string recipe;                ///< one to begin with
  std::string file;                  ///< where architecture_file() will be, for the next commands; may be empty

  /// {"base": …, "about": …, "set": …}: a file that every command takes for an architecture.
  std::string architecture_file() const;
};

/// Throws Error where the question cannot be met; the message says what would help.
Recommendation advise(const Question& question);

std::string to_text(const Recommendation& recommendation);
std::string to_json_text(const Recommendation& recommendation);

}  // namespace lamina::lab
