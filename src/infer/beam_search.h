#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lamina/infer/engine/request.h"
#include "lamina/nn/model.h"

namespace lamina::infer {

/// When a search ends although beams are still open, as in Hugging Face's transformers.
enum class EarlyStopping : uint8_t {
  heuristic,  ///< when no open beam, at its present length, scores above the worst finished answer
  first,      ///< when there are `beams` finished answers
  never,      ///< when no open beam can score above the worst finished answer at any length
};

/// Options of beam_search().
struct BeamOptions {
  int64_t beams = 4;  ///< sequences kept at each step; 1 is greedy decoding
  double length_penalty =
      1.0;  ///< score = sum of log probabilities / tokens^length_penalty; above 0 favors long answers
  EarlyStopping early_stopping = EarlyStopping::heuristic;  ///< when the search ends
  int64_t answers = 1;                                      ///< number of answers returned, at most `beams`
  int64_t max_tokens = 256;                                 ///< limit per answer
  std::vector<text::TokenId> stop_tokens;  ///< end an answer; they count for its score and length but are not returned
  int64_t context = 0;                     ///< maximum tokens of prompt and answer; 0: the architecture's context
  int64_t vocab_size = 0;                  ///< only ids below this are chosen; 0: all
  double logit_cap = 0;                    ///< soft-cap of the final logits; 0: none
  std::optional<DType> cache_dtype;        ///< type of the KV cache; default: that of the weights
};

/// An answer and its score.
struct BeamAnswer {
  std::vector<text::TokenId> ids;      ///< without the stop token
  double score = 0;                    ///< see BeamOptions::length_penalty
  Finish finish = Finish::max_tokens;  ///< why it ended
};

/// Searches for the continuation with the highest score, with `beams` candidates in each step. All beams share one
/// batch of the KV cache, and the prompt is computed once. Deterministic: equal scores are ordered by beam, then by id.
///
/// An encoder–decoder model reads the prompt once with its encoder; answers follow the decoder's start token. Returns
/// the best answers, best first. Throws an Error if the prompt is empty or leaves no room in the context.
std::vector<BeamAnswer> beam_search(nn::Model& model, std::span<const text::TokenId> prompt,
                                    const BeamOptions& options);

/// Soft-cap: logit ← cap · tanh(logit / cap).
void cap_logits(std::span<float> logits, double cap);

}  // namespace lamina::infer
