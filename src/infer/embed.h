#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lamina/nn/model.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// Which hidden states become the vector of a text.
enum class Pooling : uint8_t {
  mean,   ///< the mean over all tokens
  first,  ///< the first token, such as [CLS]; in a causal model it sees nothing else
  last,   ///< the last token, which in a causal model sees the whole text
};
/// Parses "mean", "first" or "last"; anything else is an Error that lists them.
Pooling pooling_named(const std::string& name);

/// How vectors are computed.
struct EmbedOptions {
  Pooling pooling = Pooling::mean;  ///< which hidden states count
  bool normalize = false;           ///< divide by the Euclidean norm
  int64_t batch = 32;               ///< maximum number of texts, all of equal length, in a forward pass
  std::function<void(int64_t done, int64_t total)> progress = {};  ///< called after each pass; counts tokens
};

/// The token ids of a text as the model expects them. BOS or [CLS] comes first; encoders also end with [SEP] or `</s>`.
/// A text longer than `context` tokens is cut off at the end.
std::vector<text::TokenId> embedding_ids(const text::Tokenizer& tokenizer, const std::string& text, int64_t context,
                                         text::UnknownCharacters* unknown = nullptr);

/// Hidden states [batch, seq, d_model] after the final norm, for texts of equal length. For an encoder–decoder model:
/// the hidden states of the encoder.
Tensor text_states(nn::Model& model, const Tensor& ids);

/// One vector [d_model] per text: its hidden states after the final norm, pooled, in f32. Throws an Error if a text has
/// no tokens.
std::vector<std::vector<float>> embed(nn::Model& model, const std::vector<std::vector<text::TokenId>>& texts,
                                      const EmbedOptions& options = {});

/// The vectors as a NumPy array file (.npy, version 1.0) [n, d] of f32.
std::string npy_of(const std::vector<std::vector<float>>& vectors, int64_t width);

}  // namespace lamina::infer
