#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lamina/infer/engine/request.h"
#include "lamina/nn/model.h"

namespace lamina::infer {

/// When a search ends although open beams could go on, as in Hugging Face's transformers.
enum class EarlyStopping : uint8_t {
  heuristic,  ///< if no open beam, at its present length, scores above the worst finished answer
  first,      ///< as soon as there are `beams` finished answers
  never,      ///< if no open beam can score above the worst finished answer at any length
};

/// How beam_search() looks for an answer.
struct BeamOptions {
  int64_t beams = 4;  ///< sequences kept at each step; 1 is greedy decoding
  double length_penalty =
      1.0;  ///< score = sum of log probabilities / tokens^length_penalty; above 0 favors long answers
  EarlyStopping early_stopping = EarlyStopping::heuristic;  ///< when the search ends
  int64_t answers = 1;                                      ///< best answers returned, at most `beams`
  int64_t max_tokens = 256;                                 ///< per answer
  std::vector<text::TokenId> stop_tokens;  ///< end an answer; not part of it, but of its score and length
  int64_t context = 0;                     ///< maximum tokens of prompt and answer; 0: the architecture's context
  int64_t vocab_size = 0;                  ///< only ids below this are chosen; 0: all
  double logit_cap = 0;                    ///< soft-cap of the final logits; 0: none
  std::optional<DType> cache_dtype;        ///< of the KV cache; default: the weights' type
};

/// An answer and its score.
struct BeamAnswer {
  std::vector<text::TokenId> ids;      ///< without the stop token
  double score = 0;                    ///< see BeamOptions::length_penalty
  Finish finish = Finish::max_tokens;  ///< why it ended
};

/// Searches for the continuation with the highest score, keeping `beams` candidates at each step. All beams share one
/// batch of the KV cache; the prompt is computed once. Deterministic: equal scores are ordered by beam, then by id.
/// An encoder–decoder reads the prompt with its encoder, once, and answers follow the decoder's start token.
/// Returns the best answers, best first. Throws Error if the prompt is empty or leaves no room in the context.
std::vector<BeamAnswer> beam_search(nn::Model& model, std::span<const text::TokenId> prompt,
                                    const BeamOptions& options);

/// logit ← cap · tanh(logit / cap).
void cap_logits(std::span<float> logits, double cap);

}  // namespace lamina::infer
