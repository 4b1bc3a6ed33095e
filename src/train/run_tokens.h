#pragma once

#include <memory>
#include <string>

#include "lamina/data/prepare.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

inline constexpr const char* kTrainTokens = "train.bin";
inline constexpr const char* kValidationTokens = "validation.bin";

/// Vocabulary and tokenizer of a run, as far as they are known.
struct RunTokens {
  int64_t vocab_size = 0;                      ///< 0: unknown
  std::unique_ptr<text::Tokenizer> tokenizer;  ///< null: unknown
};

/// Reads the recipe's token files. The training data, validation data, data.tokenizer and the base model (`from`) must
/// have the same tokenizer, as far as they name one. Otherwise throws an Error that names both.
RunTokens tokens_of_files(const Recipe& recipe);

/// Tokenizes the recipe's text into train.bin and validation.bin in the new folder `folder`. Fine-tuning keeps the
/// model's tokenizer; a different data.tokenizer is an Error.
RunTokens tokens_of_text(const Recipe& recipe, const std::string& folder, const data::PrepareWatch& watch);

}  // namespace lamina::train
