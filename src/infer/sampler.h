#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lamina/base/philox.h"
#include "lamina/ops/sampling/candidates.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// How the next token is chosen from logits. Filters act in the order of the fields, each on what the one before left,
/// renormalised; definitions and ties are those of Hugging Face's transformers.
struct SamplerOptions {
  /// Logits of tokens that came before, in prompt or answer, are divided by this where positive, else multiplied.
  double repetition_penalty = 1.0;
  /// Taken from the logit of every token of the answer so far, once, or once for every time it came.
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  /// Logits are divided by it; 0 takes the likeliest token, the first of equals.
  double temperature = 1.0;
  int64_t top_k = 0;       ///< keep the k largest logits and their equals; 0: all
  double top_p = 1.0;      ///< keep the likeliest tokens that together reach this probability
  double min_p = 0.0;      ///< keep tokens at least this likely, relative to the likeliest
  double typical_p = 1.0;  ///< keep tokens whose surprise is nearest the entropy, up to this probability (Meister 2022)
  /// Only ids below this are sampled; 0: all. Set it to the tokenizer's size for a model with a padded vocabulary.
  int64_t vocab_size = 0;
  uint64_t seed = 0;
};

using ops::Candidate;

/// Samples the tokens of one row. The n-th choice draws the n-th number of a random stream of the seed, so it depends
/// only on seed, random stream, logits and history.
class Sampler {
 public:
  /// Rows of one run differ in `stream`. Throws where an option is out of its range.
  explicit Sampler(const SamplerOptions& options, uint64_t stream = 0);

  /// Tokens that the row begins with.
  void see_prompt(std::span<const text::TokenId> ids);
  /// The next token from logits [vocab]. A NaN among them is an Error.
  text::TokenId next(std::span<const float> logits);

  /// Whether ops::sample on the logits' own device chooses as `next` does: nothing depends on what came before.
  bool works_on_device() const { return !penalises() && options_.typical_p >= 1; }
  const SamplerOptions& options() const { return options_; }
  uint64_t stream() const { return key_.stream; }
  uint64_t drawn() const { return drawn_; }
  /// A device has chosen `id` in place of `next`.
  void took(text::TokenId id);

  /// What `next` draws from: what the filters left, likeliest not necessarily first, probabilities adding up to 1.
  std::vector<Candidate> candidates(std::span<const float> logits) const;

 private:
  std::span<const float> allowed(std::span<const float> logits) const;
  bool penalises() const;
  void penalise(std::vector<Candidate>& list) const;

  SamplerOptions options_;
  RandomKey key_;
  uint64_t drawn_ = 0;
  /// Every token seen, and how often it came in the answer.
  std::unordered_map<text::TokenId, int64_t> counts_;
};

}  // namespace lamina::infer
