#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lamina/infer/load.h"
#include "lamina/nn/model.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// Parses "mean", "first", "last" or "max"; anything else is an Error that lists them.
arch::PoolingKind pooling_named(const std::string& name);

/// How vectors are computed.
struct EmbedOptions {
  io::VectorRecipe recipe;       ///< pooling, dense layers and normalization; TextReader applies the rest
  int64_t batch = 32;            ///< maximum number of texts, all of equal length, in a forward pass
  int64_t batch_tokens = 16384;  ///< maximum number of tokens in a forward pass of several texts
  std::function<void(int64_t done, int64_t total)> progress = {};  ///< called after each pass; counts tokens
};

/// The role of a text in a search. Models may have a prompt for each role.
enum class TextRole : uint8_t { any, document, query };
/// The recipe's prompt for a role: "query", or the first of "document", "passage" and "corpus"; else its default.
std::string prompt_for(const io::VectorRecipe& recipe, TextRole role);
/// The prompt of this name. An unknown name is an Error that lists the known ones.
std::string prompt_named(const io::VectorRecipe& recipe, const std::string& name);

/// The token ids of a text as the model expects them. BOS or [CLS] comes first; encoders also end with [SEP] or `</s>`.
/// A text longer than `context` tokens is cut off at the end and counted in `cut`, if given.
std::vector<text::TokenId> embedding_ids(const text::Tokenizer& tokenizer, const std::string& text, int64_t context,
                                         text::UnknownCharacters* unknown = nullptr, int64_t* cut = nullptr);

/// Texts as the recipe prepares them: after the prompt, trimmed, in lower case, cut to the tokens that it allows and to
/// `context` tokens.
class TextReader {
 public:
  /// An Error if the recipe does not support the prompt. `tokenizer` must outlive the reader.
  TextReader(const text::Tokenizer& tokenizer, const io::VectorRecipe& recipe, int64_t context, std::string prompt);

  /// The token ids of the prompt and the text. Characters without a token are added to `unknown`, if given; a text that
  /// is cut off is counted in `cut`.
  std::vector<text::TokenId> ids(const std::string& text, text::UnknownCharacters* unknown = nullptr,
                                 int64_t* cut = nullptr) const;
  /// Most tokens of a text.
  int64_t context() const { return context_; }

 private:
  const text::Tokenizer& tokenizer_;
  std::string prompt_;
  int64_t context_;
  bool trim_;
  bool lowercase_;
};

/// Hidden states [batch, seq, d_model] after the final norm, for texts of equal length. For an encoder–decoder model:
/// the hidden states of the encoder.
Tensor text_states(nn::Model& model, const Tensor& ids);

/// The pooled vector of one text from its hidden states [seq, width], without dense layers. Computed in double.
std::vector<double> pooled_states(std::span<const float> hidden, int64_t width, arch::PoolingKind pooling);
/// The recipe's dense layers and normalization, applied to pooled vectors of one width.
std::vector<std::vector<float>> finished_vectors(const std::vector<std::vector<double>>& pooled,
                                                 const io::VectorRecipe& recipe);
/// Numbers in a vector of the recipe.
int64_t vector_width(const io::VectorRecipe& recipe, int64_t d_model);

/// One vector per text: its hidden states after the final norm, pooled, through the recipe's dense layers, in f32.
/// Throws an Error if a text has no tokens.
std::vector<std::vector<float>> embed(nn::Model& model, const std::vector<std::vector<text::TokenId>>& texts,
                                      const EmbedOptions& options = {});

/// Vectors of texts of any lengths, computed in one pass as packed documents that do not see each other. Not for
/// encoder–decoders.
std::vector<std::vector<float>> embed_together(nn::Model& model, std::span<const std::vector<text::TokenId>> texts,
                                               const io::VectorRecipe& recipe);

/// The vectors as a NumPy array file (.npy, version 1.0) [n, d] of f32.
std::string npy_of(const std::vector<std::vector<float>>& vectors, int64_t width);

}  // namespace lamina::infer
