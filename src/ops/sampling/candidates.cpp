#include "lamina/ops/sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lamina::ops {

namespace {

/// Sets unnormalized probabilities and returns their sum. The likeliest token gets 1, so that equally likely tokens add
/// up exactly. If the largest logit is infinite, the tokens that have it share all of the probability.
double weigh(Candidates& list) {
  double most = -INFINITY;
  for (const Candidate& c : list) most = std::max(most, c.logit);
  double sum = 0;
  for (Candidate& c : list) {
    c.probability = c.logit == most ? 1 : static_cast<double>(std::exp(static_cast<float>(c.logit - most)));
    sum += c.probability;
  }
  return sum;
}

}  // namespace

void normalise(Candidates& list) {
  const double sum = weigh(list);
  for (Candidate& c : list) c.probability /= sum;
}

void keep_top_k(Candidates& list, int64_t k) {
  if (k <= 0 || k >= static_cast<int64_t>(list.size())) return;
  const auto kth = list.begin() + (k - 1);
  std::nth_element(list.begin(), kth, list.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  const double least = kth->logit;
  std::erase_if(list, [&](const Candidate& c) { return c.logit < least; });
}

/// Drops the least likely tokens as long as their total probability does not exceed 1 − p.
void keep_top_p(Candidates& list, double p) {
  if (p >= 1) return;
  const double sum = weigh(list);
  // Tokens below this bound are always dropped, because even all of them together have less than 1 − p. This shortens
  // the list that must be sorted.
  const double always_dropped = sum * (1 - p) / static_cast<double>(list.size());
  double dropped = 0;
  std::erase_if(list, [&](const Candidate& c) {
    if (c.probability >= always_dropped) return false;
    dropped += c.probability;
    return true;
  });
  std::sort(list.begin(), list.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  while (list.size() > 1 && (dropped + list.back().probability) / sum <= 1 - p) {
    dropped += list.back().probability;
    list.pop_back();
  }
}

void keep_min_p(Candidates& list, double share) {
  if (share <= 0) return;
  normalise(list);
  double most = 0;
  for (const Candidate& c : list) most = std::max(most, c.probability);
  std::erase_if(list, [&](const Candidate& c) { return c.probability < share * most; });
}

void keep_typical(Candidates& list, double mass) {
  if (mass >= 1) return;
  normalise(list);
  double entropy = 0;
  for (const Candidate& c : list) {
    if (c.probability > 0) entropy -= c.probability * std::log(c.probability);
  }
  const auto distance = [&](const Candidate& c) { return std::abs(-std::log(c.probability) - entropy); };
  std::vector<std::pair<double, double>> nearest;  // (distance, probability)
  for (const Candidate& c : list) nearest.emplace_back(distance(c), c.probability);
  std::stable_sort(nearest.begin(), nearest.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  double held = 0;
  size_t last = 0;
  while (last + 1 < nearest.size() && (held += nearest[last].second) < mass) ++last;
  const double farthest = nearest[last].first;
  std::erase_if(list, [&](const Candidate& c) { return distance(c) > farthest; });
}

const Candidate& likeliest(const Candidates& list) {
  return *std::min_element(list.begin(), list.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
}

int64_t sample_from(Candidates list, const std::array<uint32_t, 4>& words) {
  if (list.size() == 1) return list.front().id;
  // Sort by id, so that the result does not depend on the order in which the filters left the list.
  std::sort(list.begin(), list.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  const uint64_t word = (uint64_t{words[0]} << 32U) | words[1];
  double left = static_cast<double>(word >> 11U) * 0x1p-53;
  for (const Candidate& c : list) {
    if ((left -= c.probability) < 0) return c.id;
  }
  return likeliest(list).id;  // only if rounding errors left a remainder
}

}  // namespace lamina::ops
