#pragma once

#include <span>
#include <utility>
#include <vector>

#include "lamina/nn/model.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// Selects the results that inspect() computes.
struct InspectOptions {
  int64_t top = 5;              ///< number of likeliest tokens in each prediction
  int64_t vocab_size = 0;       ///< predictions cover ids below this; 0: all ids
  std::vector<int64_t> layers;  ///< layers whose attention weights to keep; layers without attention are skipped
  std::vector<int64_t> heads;   ///< query heads whose attention weights to keep; empty: all
  bool hidden_norms = false;    ///< compute norms of the residual stream after each layer
  /// Log-probabilities [tokens, vocab_size] of another model, from next_token_logprobs(); empty: no comparison.
  std::span<const float> compare;
};

/// The distribution that a model predicts after a token.
struct Prediction {
  double logprob = 0;  ///< log-probability of the token that follows; 0 for the last one
  double entropy = 0;  ///< entropy of the distribution, in nats
  double kl = 0;       ///< KL(this model || other model) in nats, with InspectOptions::compare
  std::vector<std::pair<text::TokenId, float>> top;  ///< likeliest tokens with their log-probabilities
};

/// Attention weights of one head: weights[i · tokens + j] is the weight of key j for query i.
struct AttentionMap {
  int64_t layer = 0;           ///< counted from 0
  int64_t head = 0;            ///< query head, counted from 0
  std::vector<float> weights;  ///< [tokens, tokens]
};

/// Results of inspect().
struct Inspection {
  std::vector<Prediction> predictions;  ///< after each token
  std::vector<AttentionMap> attention;  ///< ordered by layer, then head
  /// Euclidean norms of the residual stream, [layer][token].
  std::vector<std::vector<double>> hidden_norms;
};

/// Runs `model` on `ids`. Reports its predictions and, if selected, attention weights and norms. Needs memory for all
/// tokens at once. Throws an Error for layers or heads that do not exist.
Inspection inspect(nn::Model& model, std::span<const text::TokenId> ids, const InspectOptions& options);

/// Log-probabilities [tokens, vocab_size] for the token after each of `ids`.
std::vector<float> next_token_logprobs(nn::Model& model, std::span<const text::TokenId> ids, int64_t vocab_size);

}  // namespace lamina::infer
