#include "lamina/infer/sampler.h"

#include <algorithm>
#include <cmath>

#include "lamina/base/error.h"

namespace lamina::infer {
namespace {

using ops::Candidates;

void check(const SamplerOptions& o) {
  LAMINA_CHECK(o.repetition_penalty > 0, "repetition penalty ", o.repetition_penalty,
               ": expected a positive number, 1 for none");
  LAMINA_CHECK(std::isfinite(o.presence_penalty) && std::isfinite(o.frequency_penalty),
               "presence and frequency penalties must be finite numbers");
  LAMINA_CHECK(o.temperature >= 0 && std::isfinite(o.temperature), "temperature ", o.temperature,
               ": expected 0 (the likeliest token) or a positive number");
  LAMINA_CHECK(o.top_k >= 0, "top-k ", o.top_k, ": expected a positive number, or 0 for no limit");
  LAMINA_CHECK(o.top_p > 0 && o.top_p <= 1, "top-p ", o.top_p, ": expected a probability above 0, 1 for no limit");
  LAMINA_CHECK(o.min_p >= 0 && o.min_p <= 1, "min-p ", o.min_p, ": expected a share from 0 (no limit) to 1");
  LAMINA_CHECK(o.vocab_size >= 0, "vocabulary of ", o.vocab_size, " ids: expected a positive number, or 0 for all ids");
  LAMINA_CHECK(o.typical_p > 0 && o.typical_p <= 1, "typical ", o.typical_p,
               ": expected a probability above 0, 1 for no limit");
}

constexpr const char* kNoLogits = "sampling: no logits; the vocabulary is empty";

void check_number(float logit, size_t token) {
  LAMINA_CHECK(!std::isnan(logit), "sampling: the logit of token ", token,
               " is not a number; the model's weights are broken, or its type overflows");
}

/// Greedy sampling: the same token as candidates() at temperature 0, without allocating a list.
text::TokenId first_of_largest(std::span<const float> logits) {
  LAMINA_CHECK(!logits.empty(), kNoLogits);
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= logits[best]) continue;
    check_number(logits[i], i);
    best = i;
  }
  check_number(logits[best], best);
  return static_cast<text::TokenId>(best);
}

}  // namespace

bool Sampler::penalises() const {
  return options_.repetition_penalty != 1 || options_.presence_penalty != 0 || options_.frequency_penalty != 0;
}

Sampler::Sampler(const SamplerOptions& options, uint64_t stream) : options_(options), key_{options.seed, stream} {
  check(options);
}

void Sampler::see_prompt(std::span<const text::TokenId> ids) {
  for (const text::TokenId id : ids) counts_.try_emplace(id, 0);
}

void Sampler::penalise(Candidates& list) const {
  if (!penalises()) return;
  for (const auto& [id, count] : counts_) {
    if (id < 0 || id >= static_cast<text::TokenId>(list.size())) continue;
    double& logit = list[static_cast<size_t>(id)].logit;
    logit = logit < 0 ? logit * options_.repetition_penalty : logit / options_.repetition_penalty;
    if (count > 0) logit -= options_.presence_penalty + options_.frequency_penalty * static_cast<double>(count);
  }
}

std::span<const float> Sampler::allowed(std::span<const float> logits) const {
  const auto limit = static_cast<size_t>(options_.vocab_size);
  return limit > 0 && limit < logits.size() ? logits.first(limit) : logits;
}

std::vector<Candidate> Sampler::candidates(std::span<const float> logits) const {
  logits = allowed(logits);
  LAMINA_CHECK(!logits.empty(), kNoLogits);
  Candidates list(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    check_number(logits[i], i);
    list[i] = {static_cast<int64_t>(i), static_cast<double>(logits[i]), 0};
  }
  penalise(list);
  if (options_.temperature == 0) {
    Candidate best = ops::likeliest(list);
    best.probability = 1;
    return {best};
  }
  for (Candidate& c : list) c.logit /= options_.temperature;
  ops::keep_top_k(list, options_.top_k);
  ops::keep_top_p(list, options_.top_p);
  ops::keep_min_p(list, options_.min_p);
  ops::keep_typical(list, options_.typical_p);
  ops::normalise(list);
  return list;
}

text::TokenId Sampler::next(std::span<const float> logits) {
  if (options_.temperature == 0 && !penalises()) return first_of_largest(allowed(logits));
  const auto chosen = static_cast<text::TokenId>(ops::sample_from(candidates(logits), philox(key_, drawn_++)));
  ++counts_[chosen];
  return chosen;
}

}  // namespace lamina::infer
