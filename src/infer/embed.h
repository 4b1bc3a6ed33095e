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
  int64_t batch = 32;               ///< most texts in a forward pass; texts of one length are computed together
  std::function<void(int64_t done, int64_t total)> progress = {};  ///< called after each pass with numbers of tokens
};

/// The ids of a text as its model expects them: after BOS or [CLS], and before [SEP] or `</s>` of encoders. At most
/// `context` tokens: the end of a longer text is cut off.
std::vector<text::TokenId> embedding_ids(const text::Tokenizer& tokenizer, const std::string& text, int64_t context,
                                         text::UnknownCharacters* unknown = nullptr);

/// Hidden states [batch, seq, d_model] of texts of one length, after the final norm. For an encoder–decoder, those
/// of the encoder.
Tensor text_states(nn::Model& model, const Tensor& ids);

/// Vectors [d_model] of texts: the pooled hidden states after the final norm, in f32. A text without tokens is an
/// Error.
std::vector<std::vector<float>> embed(nn::Model& model, const std::vector<std::vector<text::TokenId>>& texts,
                                      const EmbedOptions& options = {});

/// The vectors as a NumPy array file (.npy, version 1.0) [n, d] of f32.
std::string npy_of(const std::vector<std::vector<float>>& vectors, int64_t width);

}  // namespace lamina::infer
