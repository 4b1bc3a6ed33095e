#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lamina::ops {

// Sampling filters on the host, shared by the CPU kernels of sample() and sample_rows() and by infer::Sampler.

/// A token that may be sampled, with its probability.
struct Candidate {
  int64_t id = 0;
  double logit = 0;
  double probability = 0;
};
using Candidates = std::vector<Candidate>;

/// Sets each probability to the softmax of the logits.
void normalise(Candidates& list);

// Filters, as described in SampleOptions. They leave the list in unspecified order.
void keep_top_k(Candidates& list, int64_t k);
void keep_top_p(Candidates& list, double p);
void keep_min_p(Candidates& list, double share);
/// Keeps the tokens whose −log p is closest to the entropy, until their probabilities reach `mass` (Meister et al.
/// 2022, arXiv:2202.00666).
void keep_typical(Candidates& list, double mass);

/// The candidate with the highest probability; ties go to the lowest id.
const Candidate& likeliest(const Candidates& list);

/// Samples a token from a list with normalized probabilities; `words` are the random bits.
int64_t sample_from(Candidates list, const std::array<uint32_t, 4>& words);

}  // namespace lamina::ops
