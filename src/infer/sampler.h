#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lamina/base/philox.h"
#include "lamina/ops/sampling/candidates.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// How the next token is sampled from logits. Filters apply in the order of the fields; each renormalizes the result of
/// the previous one. Definitions and ties follow Hugging Face's transformers.
struct SamplerOptions {
  /// Divides positive logits, and multiplies negative ones, of tokens that occur in the prompt or the answer.
  double repetition_penalty = 1.0;
  /// Subtracted from the logits of tokens in the answer: presence once, frequency once per occurrence.
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;  ///< see presence_penalty
  /// Divides the logits. 0 means greedy: the most likely token, and the first one among equals.
  double temperature = 1.0;
  int64_t top_k = 0;   ///< keep the k largest logits, including ties with the last; 0: all
  double top_p = 1.0;  ///< keep the most likely tokens that together reach this probability
  double min_p = 0.0;  ///< keep tokens with at least this probability relative to the most likely one
  /// Keep tokens whose surprisal is closest to the entropy, up to this total probability (Meister 2022).
  double typical_p = 1.0;
  /// Only ids below this are sampled; 0: all. For a model with a padded vocabulary, set it to the tokenizer's size.
  int64_t vocab_size = 0;
  uint64_t seed = 0;  ///< seed of the random numbers
};

/// The seed of a random stream: `seed` itself for stream 0; for other streams, mixed with the stream's number
/// (splitmix64). Rows of a batch, and answers to one prompt, use different streams.
constexpr uint64_t seed_of_stream(uint64_t seed, uint64_t stream) {
  uint64_t z = stream * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return seed ^ (z ^ (z >> 31U));
}

using ops::Candidate;

/// Samples the tokens of one row. The n-th token uses the n-th number of a random stream, so it depends only on the
/// seed, the stream, the logits and the history.
class Sampler {
 public:
  /// Rows of a batch must use different values of `stream`. Throws an Error if an option is out of range.
  explicit Sampler(const SamplerOptions& options, uint64_t stream = 0);

  /// Sets the tokens of the prompt, for the repetition penalty.
  void see_prompt(std::span<const text::TokenId> ids);
  /// Samples the next token from logits [vocab]. A NaN logit is an Error.
  text::TokenId next(std::span<const float> logits);

  /// The distribution that next() samples from: the tokens that pass all filters, unsorted, with normalized
  /// probabilities.
  std::vector<Candidate> candidates(std::span<const float> logits) const;

 private:
  std::span<const float> allowed(std::span<const float> logits) const;
  bool penalises() const;
  void penalise(std::vector<Candidate>& list) const;

  SamplerOptions options_;
  RandomKey key_;
  uint64_t drawn_ = 0;
  /// Every token seen so far, with its number of occurrences in the answer.
  std::unordered_map<text::TokenId, int64_t> counts_;
};

}  // namespace lamina::infer
