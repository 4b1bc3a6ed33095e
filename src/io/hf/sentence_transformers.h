#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lamina/arch/heads.h"
#include "lamina/tensor/tensor.h"

namespace lamina::io {

/// A linear layer on the vector of a text: activation(weight · x + bias).
struct VectorDense {
  Tensor weight;  ///< [out, in]
  Tensor bias;    ///< [out]; may be undefined
  arch::Activation activation = arch::Activation::tanh;
};

/// How texts become vectors: what a folder of the sentence-transformers library says beside the encoder's weights.
struct VectorRecipe {
  arch::PoolingKind pooling = arch::PoolingKind::mean;
  std::vector<VectorDense> dense;              ///< dense layers after pooling, in order
  bool normalize = false;                      ///< last: divide by the Euclidean norm
  bool trim = false;                           ///< remove white space around a text
  bool lowercase = false;                      ///< lower-case the text before tokenizing it
  bool pool_prompt = true;                     ///< whether tokens of the prompt are pooled
  std::optional<int64_t> max_tokens;           ///< of a text with its prompt and special tokens; default: the context
  std::map<std::string, std::string> prompts;  ///< texts to put before the input, by name
  std::string default_prompt;                  ///< name of the one to use if none is chosen; empty: none
};

/// Whether a folder has the file modules.json of sentence-transformers.
bool is_sentence_transformer(const std::string& folder);

/// Where such a folder has the encoder: itself, or a folder in it such as "0_Transformer".
std::string encoder_folder(const std::string& folder);

/// Reads modules.json, the modules' settings, prompts and dense layers. Everything that would change the vectors and is
/// not supported is an Error that names the file and the key. `width` is the encoder's d_model.
VectorRecipe read_vector_recipe(const std::string& folder, int64_t width);

/// The files of such a folder that define a VectorRecipe, by their path in a copy whose encoder is in the folder
/// itself.
struct RecipeFile {
  std::string name;    ///< its name in the written folder
  std::string source;  ///< the file to copy; empty: the file is `text`
  std::string text;
};
std::vector<RecipeFile> vector_recipe_files(const std::string& folder);

/// Whether a file or folder is one of those that vector_recipe_files names, by its name and, of a folder, its content.
bool is_recipe_entry(const std::string& path);

// Parsers of the single files, for untrusted text. `name` begins messages.

/// A module of modules.json.
struct SentenceModule {
  std::string kind;  ///< the class name: Transformer, Pooling, Dense, Normalize
  std::string path;  ///< its folder; empty: the folder of the model
};
/// The modules in order: Transformer, Pooling, any number of Dense, and optionally Normalize.
std::vector<SentenceModule> parse_modules(std::string_view text, const std::string& name);
/// The config.json of a Pooling module.
void parse_pooling(std::string_view text, const std::string& name, int64_t width, VectorRecipe& recipe);
/// sentence_bert_config.json.
void parse_text_limits(std::string_view text, const std::string& name, VectorRecipe& recipe);
/// config_sentence_transformers.json.
void parse_prompts(std::string_view text, const std::string& name, VectorRecipe& recipe);

}  // namespace lamina::io
