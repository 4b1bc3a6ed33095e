#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lamina/io/checkpoint.h"
#include "lamina/io/hf/sentence_transformers.h"
#include "lamina/nn/model.h"
#include "lamina/nn/weight_format.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// A model ready for inference.
struct LoadedModel {
  std::string path;                            ///< of the weights; the folder of a run is resolved to its checkpoint
  std::unique_ptr<nn::Model> model;            ///< never null
  std::unique_ptr<text::Tokenizer> tokenizer;  ///< null if none was found
  std::string tokenizer_path;                  ///< its file or folder
  std::vector<text::TokenId> stop_tokens;      ///< tokens that end a text, from the tokenizer and the checkpoint
  std::string fingerprint;                     ///< see model_fingerprint; empty unless asked for
  /// How texts become vectors, if the model says so: by the files of sentence-transformers or by spec().pooling.
  std::optional<io::VectorRecipe> vectors;
};

/// How a model is loaded.
struct LoadOptions {
  std::string tokenizer;      ///< a file or folder; empty: search beside the weights
  nn::WeightFormats weights;  ///< formats to convert the projections to; default: as stored
  bool fingerprint = false;   ///< compute LoadedModel::fingerprint
  /// Ranks that hold the model together; each loads its shards. Null: this process loads all of it.
  std::shared_ptr<const nn::TensorParallel> parallel = nullptr;
};

/// Loads a model in any format of io::read_model, or from the folder of a training run (`best`, else `last`). Weights
/// remain in the mapped file unless their format changes. The tokenizer is searched in the model's folder, or beside a
/// model that is one file.
LoadedModel load_model(const std::string& path, const Device& device, const LoadOptions& options = {});

/// What this rank holds of the tensors of a whole model, for Module::adopt_state_dict. Without other ranks all of them.
nn::StateDict own_tensors(const nn::Model& model, const nn::StateDict& whole);

/// LoadedModel::vectors, or the mean of the hidden states.
io::VectorRecipe vector_recipe(const LoadedModel& model);

/// Throws Error unless `draft` can draft tokens for `target`: both have the same tokenizer. A model without one must
/// have a vocabulary of the same size.
void check_draft(const LoadedModel& target, const LoadedModel& draft);

/// Returns the tokenizer. If there is none, throws an Error that says what to give.
const text::Tokenizer& require_tokenizer(const LoadedModel& model);

/// The ids of `text` as the source of an encoder–decoder: between the BOS and EOS tokens that the tokenizer has.
/// Special tokens written in the text, such as sentinels, become their ids. `unknown` as in text::Tokenizer::encode.
std::vector<text::TokenId> source_ids(const text::Tokenizer& tokenizer, const std::string& text,
                                      text::UnknownCharacters* unknown = nullptr);

/// The ids of `text`, after the BOS token if the tokenizer has one. `unknown` as in text::Tokenizer::encode.
std::vector<text::TokenId> prompt_ids(const text::Tokenizer& tokenizer, const std::string& text,
                                      text::UnknownCharacters* unknown = nullptr);

}  // namespace lamina::infer
