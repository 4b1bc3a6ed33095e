#pragma once

#include <span>
#include <utility>
#include <vector>

#include "lamina/nn/model.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// Selects the results of inspect().
struct InspectOptions {
  int64_t top = 5;              ///< likeliest tokens of each prediction
  int64_t vocab_size = 0;       ///< predictions are over the ids below this; 0: all
  std::vector<int64_t> layers;  ///< layers whose attention weights are kept; those without attention are skipped
  std::vector<int64_t> heads;   ///< of these heads; empty: all
  bool hidden_norms = false;    ///< norms of the residual stream after each layer
  /// Log-probabilities [tokens, vocab_size] of another model, from next_token_logprobs(); empty: no comparison.
  std::span<const float> compare;
};

/// The distribution that a model predicts after a token.
struct Prediction {
  double logprob = 0;  ///< of the token that follows in the text; 0 after the last one
  double entropy = 0;  ///< in nats
  double kl = 0;       ///< KL(this model || other model) in nats, with InspectOptions::compare
  std::vector<std::pair<text::TokenId, float>> top;  ///< likeliest tokens with their log-probabilities
};

/// Attention weights of one head: weights[i · tokens + j] is how much query i reads of key j.
struct AttentionMap {
  int64_t layer = 0;           ///< from 0
  int64_t head = 0;            ///< query head, from 0
  std::vector<float> weights;  ///< [tokens, tokens]
};

/// Results of inspect().
struct Inspection {
  std::vector<Prediction> predictions;  ///< after each token
  std::vector<AttentionMap> attention;  ///< by layer, then head
  /// Euclidean norm of the residual stream, by layer and token.
  std::vector<std::vector<double>> hidden_norms;
};

/// Runs `model` over `ids` and reports its predictions and, as asked, attention weights and norms. Needs memory for all
/// tokens at once. Throws Error for layers or heads that do not exist.
Inspection inspect(nn::Model& model, std::span<const text::TokenId> ids, const InspectOptions& options);

/// Log-probabilities [tokens, vocab_size] of the token after each of `ids`.
std::vector<float> next_token_logprobs(nn::Model& model, std::span<const text::TokenId> ids, int64_t vocab_size);

}  // namespace lamina::infer
