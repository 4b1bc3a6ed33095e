#pragma once

#include <memory>
#include <string>

#include "lamina/data/prepare.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

inline constexpr const char* kTrainTokens = "train.bin";
inline constexpr const char* kValidationTokens = "validation.bin";

/// What is known of a run's tokens.
struct RunTokens {
  int64_t vocab_size = 0;                      ///< 0: unknown
  std::unique_ptr<text::Tokenizer> tokenizer;  ///< null: unknown
};

/// Of the token files that a recipe names. Training data, validation data, data.tokenizer and the model that is trained
/// further (`from`) must have the same tokenizer, as far as they say; otherwise an Error names both.
RunTokens tokens_of_files(const Recipe& recipe);

/// Turns the recipe's text into train.bin and validation.bin in the new folder `folder`. A model that is trained
/// further keeps its tokenizer: a data.tokenizer that is another one is an Error.
RunTokens tokens_of_text(const Recipe& recipe, const std::string& folder, const data::PrepareWatch& watch);

}  // namespace lamina::train
