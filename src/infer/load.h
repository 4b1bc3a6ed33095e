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
  /// Path of the weights; for the folder of a run, the path of its checkpoint.
  std::string path;
  std::unique_ptr<nn::Model> model;            ///< never null
  std::unique_ptr<text::Tokenizer> tokenizer;  ///< null if none was found
  std::string tokenizer_path;                  ///< file or folder of the tokenizer
  std::vector<text::TokenId> stop_tokens;      ///< tokens that end a text, from the tokenizer and the checkpoint
  std::string fingerprint;                     ///< see model_fingerprint; empty unless requested
  /// How texts become vectors, if the model says so: by the files of sentence-transformers or by spec().pooling.
  std::optional<io::VectorRecipe> vectors;
};

/// Options of load_model().
struct LoadOptions {
  std::string tokenizer;      ///< a file or folder; empty: search next to the weights
  nn::WeightFormats weights;  ///< formats to which the projections are converted; default: as stored
  bool fingerprint = false;   ///< whether to compute LoadedModel::fingerprint
  /// The tensor-parallel ranks that hold the model together; each loads its shards. Null: this process loads the whole
  /// model.
  std::shared_ptr<const nn::TensorParallel> parallel = nullptr;
};

/// Loads a model in any format of io::read_model, or from the folder of a training run (`best`, else `last`). Weights
/// stay in the mapped file unless their format changes. The tokenizer is searched in the model's folder or, if the
/// model is a single file, next to it.
LoadedModel load_model(const std::string& path, const Device& device, const LoadOptions& options = {});

/// The part of the whole model's tensors that this rank holds, for Module::adopt_state_dict. All tensors if there is
/// only one rank.
nn::StateDict own_tensors(const nn::Model& model, const nn::StateDict& whole);

/// LoadedModel::vectors, or the mean of the hidden states.
io::VectorRecipe vector_recipe(const LoadedModel& model);

/// Throws an Error unless `draft` can draft tokens for `target`: both need the same tokenizer. If a model has no
/// tokenizer, the vocabulary sizes must be equal.
void check_draft(const LoadedModel& target, const LoadedModel& draft);

/// Returns the tokenizer. If the model has none, throws an Error that says how to provide one.
const text::Tokenizer& require_tokenizer(const LoadedModel& model);

/// The token ids of `text` as the source of an encoder–decoder model, surrounded by the tokenizer's BOS and EOS, if it
/// has them. Special tokens in the text, such as sentinels, become their ids. `unknown`: see text::Tokenizer::encode.
std::vector<text::TokenId> source_ids(const text::Tokenizer& tokenizer, const std::string& text,
                                      text::UnknownCharacters* unknown = nullptr);

/// The token ids of `text`, after BOS if the tokenizer has one. `unknown`: see text::Tokenizer::encode.
std::vector<text::TokenId> prompt_ids(const text::Tokenizer& tokenizer, const std::string& text,
                                      text::UnknownCharacters* unknown = nullptr);

}  // namespace lamina::infer
