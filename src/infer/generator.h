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

/// How answers are generated.
struct GenerateOptions {
  int64_t max_tokens = 256;                ///< per row
  SamplerOptions sampler;                  ///< how the next token is chosen
  double logit_cap = 0;                    ///< soft-cap of the final logits, cap · tanh(logit / cap); 0: none
  std::vector<text::TokenId> stop_tokens;  ///< end a row; not part of its answer
  /// Maximum number of tokens of prompt and answer together; 0: the architecture's context.
  int64_t context = 0;
  /// Whether to use a KV cache. Without it, each token takes a forward over all tokens before it (for comparison).
  bool cache = true;
  /// Type of the KV cache; default: the weights' type. Ignored by Session, which sets its own.
  std::optional<DType> cache_dtype;
  /// Speculative decoding: a smaller model with the same tokenizer, which must outlive the call. Null: prompt lookup.
  /// The answers are the same. Ignored by Session, which sets its own.
  nn::Model* draft_model = nullptr;
  /// Maximum number of tokens drafted at once, as EngineOptions::draft_tokens.
  int64_t draft_tokens = 0;
  /// Limits the tokens of every answer (grammar_mask); empty: no limits. Needs the KV cache.
  std::shared_ptr<const TokenMask> mask;
  /// Neighbours to interpolate predictions with (infer/knn.h); null: none. Rows are then computed one after the other.
  /// Not together with `mask`, `draft_tokens` or `draft_model`, and not in a Session.
  std::shared_ptr<const KnnLm> knn;
  /// Finds the neighbours of each chunk when it is complete, for a model with retrieval; empty: it generates as a plain
  /// decoder. Rows are then computed one after the other. Excludes the same options as `knn`, and `knn`.
  NeighboursOf neighbours;
};

/// The answer to one prompt.
struct Generation {
  std::vector<text::TokenId> ids;      ///< the answer
  Finish finish = Finish::max_tokens;  ///< why it ended
};

/// Called with each sampled token. Returning false ends that row after this token.
using OnToken = std::function<bool(size_t row, text::TokenId id)>;

/// Continues every prompt, many at once (infer::Engine): prompts are computed in packed chunks, prompts with a common
/// beginning share it, and rows that end make room. Row i samples from random stream i of the seed (seed_of_stream), so
/// its answer does not depend on the other rows (except for rounding in matrix products). Throws Error if a prompt is
/// empty, has a token outside the vocabulary, or leaves no room in the context.
///
/// An encoder–decoder reads each prompt with its encoder, once, and its answer follows the decoder's start token. The
/// context then limits prompt and answer apart. Its rows are computed one after the other; not with `mask`, `knn` or
/// `draft_tokens`.
std::vector<Generation> generate(nn::Model& model, const std::vector<std::vector<text::TokenId>>& prompts,
                                 const GenerateOptions& options, const OnToken& on_token = {});

/// A conversation that keeps its KV cache between turns.
class Session {
 public:
  /// `context` 0: the architecture's. `cache_dtype`, `draft_tokens` and `draft_model` as in GenerateOptions; the models
  /// must outlive the session.
  explicit Session(nn::Model& model, int64_t context = 0, std::optional<DType> cache_dtype = {},
                   int64_t draft_tokens = 0, nn::Model* draft_model = nullptr);
  ~Session();

  /// Appends `ids` to the conversation and generates the answer.
  Generation turn(std::span<const text::TokenId> ids, const GenerateOptions& options, const OnToken& on_token = {});
  /// Number of tokens so far, including answers.
  int64_t length() const { return static_cast<int64_t>(ids_.size()); }
  int64_t context() const { return context_; }  ///< most tokens that fit
  void clear();                                 ///< starts a new conversation

 private:
  nn::Model& model_;
  int64_t context_;
  std::unique_ptr<Engine> engine_;
  std::vector<text::TokenId> ids_;
  uint64_t turns_ = 0;
};

}  // namespace lamina::infer
