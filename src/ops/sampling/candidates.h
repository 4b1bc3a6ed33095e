#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lamina::ops {

/// A token that may come, and how likely it is.
struct Candidate {
  int64_t id = 0;
  double logit = 0;
  double probability = 0;
};
using Candidates = std::vector<Candidate>;

/// probability = softmax of the logits.
void normalise(Candidates& list);

// Filters, as SampleOptions defines them. They leave the list in any order.
void keep_top_k(Candidates& list, int64_t k);
void keep_top_p(Candidates& list, double p);
void keep_min_p(Candidates& list, double share);

/// The first, by id, of the largest.
const Candidate& likeliest(const Candidates& list);

/// The token on which the random words fall, of a list that is normalised.
int64_t drawn_from(Candidates list, const std::array<uint32_t, 4>& words);

}  // namespace lamina::ops
