#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lamina/io/checkpoint.h"
#include "lamina/nn/model.h"
#include "lamina/nn/weight_format.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// A model ready to be asked.
struct LoadedModel {
  std::string path;  ///< of the weights, with a run's folder resolved
  std::unique_ptr<nn::Model> model;
  std::unique_ptr<text::Tokenizer> tokenizer;  ///< null where none was found
  std::string tokenizer_path;                  ///< its file or folder
  std::vector<text::TokenId> stop_tokens;      ///< what ends a text, by the tokenizer or the checkpoint
};

struct LoadOptions {
  std::string tokenizer;  ///< a file or folder; empty: looked for beside the weights
  nn::WeightFormats weights;
};

/// A model in any format io::read_model knows, or the folder of a training run, of which `best` or else `last` is
/// taken. Weights stay in the mapped file where their format is not changed. The tokenizer is sought in the model's
/// folder, or beside a model that is one file.
LoadedModel load_model(const std::string& path, const Device& device, const LoadOptions& options = {});

/// The tokenizer, or an Error that says what to give.
const text::Tokenizer& require_tokenizer(const LoadedModel& model);

/// The ids of `text`, after the BOS token if the tokenizer has one. `unknown` as in text::Tokenizer::encode.
std::vector<text::TokenId> prompt_ids(const text::Tokenizer& tokenizer, const std::string& text,
                                      text::UnknownCharacters* unknown = nullptr);

}  // namespace lamina::infer
