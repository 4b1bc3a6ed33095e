#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lamina/infer/chunk_retriever.h"
#include "lamina/infer/engine/engine.h"
#include "lamina/infer/sampler.h"
#include "lamina/nn/model.h"

namespace lamina::infer {

class KnnLm;

/// Options of generate().
struct GenerateOptions {
  int64_t max_tokens = 256;                ///< limit per row
  SamplerOptions sampler;                  ///< how the next token is chosen
  double logit_cap = 0;                    ///< soft-cap of the final logits, cap · tanh(logit / cap); 0: none
  std::vector<text::TokenId> stop_tokens;  ///< end a row; they are not part of the answer
  /// Maximum length of prompt and answer together. 0: the architecture's context.
  int64_t context = 0;
  /// Whether to use a KV cache. Without it, each token needs a forward pass over all tokens before it (for comparison).
  bool cache = true;
  /// Data type of the KV cache. Default: the type of the weights. A Session sets its own and ignores this.
  std::optional<DType> cache_dtype;
  /// Speculative decoding: a smaller model with the same tokenizer, which must outlive the call. Null: prompt lookup.
  /// The answers do not change. A Session sets its own and ignores this.
  nn::Model* draft_model = nullptr;
  /// Maximum number of tokens drafted at once; see EngineOptions::draft_tokens.
  int64_t draft_tokens = 0;
  /// Restricts the tokens of every answer (grammar_mask). Null: no restriction. Needs the KV cache.
  std::shared_ptr<const TokenMask> mask;
  /// Neighbours with which predictions are interpolated (infer/knn.h). Null: none. Rows are then computed one after the
  /// other. Excludes `mask`, `draft_tokens`, `draft_model`, and use in a Session.
  std::shared_ptr<const KnnLm> knn;
  /// Finds the neighbours of each complete chunk, for a model with retrieval. Empty: the model generates like a plain
  /// decoder. Rows are then computed one after the other. Excludes `knn` and everything that `knn` excludes.
  NeighboursOf neighbours;
};

/// The answer to one prompt.
struct Generation {
  std::vector<text::TokenId> ids;      ///< the answer
  Finish finish = Finish::max_tokens;  ///< why it ended
};

/// Called with each sampled token. Returning false ends the row after this token.
using OnToken = std::function<bool(size_t row, text::TokenId id)>;

/// Continues many prompts at once (infer::Engine): prompts are computed in packed chunks, a common beginning is
/// computed once, and rows that end make room for others. Row i samples from random stream i of the seed
/// (seed_of_stream), so its answer does not depend on the other rows, except for rounding in matrix products. Throws an
/// Error if a prompt is empty, has a token outside the vocabulary, or leaves no room in the context.
///
/// An encoder–decoder model reads each prompt once with its encoder, and the answer follows the decoder's start token.
/// The context then limits prompt and answer separately. Its rows are computed one after the other. Excludes `mask`,
/// `knn` and `draft_tokens`.
std::vector<Generation> generate(nn::Model& model, const std::vector<std::vector<text::TokenId>>& prompts,
                                 const GenerateOptions& options, const OnToken& on_token = {});

/// A conversation that keeps its KV cache between turns.
class Session {
 public:
  /// `context` 0: the architecture's context. See GenerateOptions for `cache_dtype`, `draft_tokens` and `draft_model`.
  /// The models must outlive the session.
  explicit Session(nn::Model& model, int64_t context = 0, std::optional<DType> cache_dtype = {},
                   int64_t draft_tokens = 0, nn::Model* draft_model = nullptr);
  ~Session();

  /// Appends `ids` to the conversation and generates an answer.
  Generation turn(std::span<const text::TokenId> ids, const GenerateOptions& options, const OnToken& on_token = {});
  /// Number of tokens so far, including answers.
  int64_t length() const { return static_cast<int64_t>(ids_.size()); }
  int64_t context() const { return context_; }  ///< maximum number of tokens
  void clear();                                 ///< starts a new conversation

 private:
  nn::Model& model_;
  int64_t context_;
  std::unique_ptr<Engine> engine_;
  std::vector<text::TokenId> ids_;
  uint64_t turns_ = 0;
};

}  // namespace lamina::infer
