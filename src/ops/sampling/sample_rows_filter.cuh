#pragma once

// Filters of sample_rows: top_k, top_p, min_p and typical_p. Each searches for the largest key such that enough tokens,
// or enough probability, have keys at least as large (radix_threshold). First, the tokens with at least 2^-16 of the
// largest probability are collected in shared memory. If all other tokens are certain to be dropped, the filters use
// only the collected tokens; otherwise they read the whole row in every pass.

#include "lamina/ops/sampling/sample_rows.cuh"

namespace lamina::ops::cuda::sampling {

constexpr int kMostCollected = 4096;
constexpr float kLeastLog2 = -16;

struct FilterShared {
  float logits[kMostCollected];
  int ids[kMostCollected];
  int count;
};

template <class T>
class RowFilter {
 public:
  __device__ RowFilter(const Row<T>& row, FilterShared& shared, Mass* scratch)
      : row_(row), shared_(shared), scratch_(scratch) {
    collect();
    keep_top_k();
    keep_top_p();
    keep_typical();
  }

  /// The first kept token, by id, whose cumulative probability exceeds the random number; −1 if no token has a
  /// probability.
  __device__ int draw(uint64_t word) {
    const Mass all = kept_mass();
    if (all == 0) return -1;
    const Mass target = __umul64hi(word, all);
    const uint32_t key = radix_threshold(target + 1, scratch_, [&](auto&& item) {
      visit([&](float logit, int id) {
        if (keeps(logit, id)) item(~static_cast<uint32_t>(id), [&] { return row_.mass(logit); });
      });
    });
    return static_cast<int>(~key);
  }

 private:
  /// Calls fn(adjusted logit, id) for the tokens of this thread: the collected ones, or else all that the mask allows.
  template <class F>
  __device__ void visit(const F& fn) const {
    if (collected_) {
      for (int n = static_cast<int>(threadIdx.x); n < shared_.count; n += kChooseThreads) {
        fn(shared_.logits[n], shared_.ids[n]);
      }
      return;
    }
    for (int id = static_cast<int>(threadIdx.x); id < row_.p.vocab; id += kChooseThreads) {
      if (row_.allows(id)) fn(row_.adjusted(id, row_.raw(id)), id);
    }
  }
  __device__ bool keeps(float logit, int id) const {
    const uint32_t key = order_key(logit);
    if (key < bound_ || (key == bound_ && id > last_on_bound_)) return false;
    if (row_.weight(logit) < row_.min_p) return false;
    return distance(logit) <= farthest_;
  }
  /// |−log2 p − entropy| of a token, for typical_p; 0 without it.
  __device__ float distance(float logit) const {
    return typical_ ? fabsf(__fsub_rn(row_.log2_weight(logit), mean_log2_)) : 0.0F;
  }
  __device__ Mass kept_mass() const {
    Mass own = 0;
    visit([&](float logit, int id) { own += keeps(logit, id) ? row_.mass(logit) : 0; });
    return block_total(own, scratch_);
  }

  __device__ void collect() {
    if (threadIdx.x == 0) shared_.count = 0;
    __syncthreads();
    Mass inside = 0;
    Mass outside = 0;
    visit([&](float logit, int id) {
      const Mass mass = row_.mass(logit);
      if (row_.log2_weight(logit) < kLeastLog2) {
        outside += mass;
        return;
      }
      inside += mass;
      const int at = atomicAdd(&shared_.count, 1);
      if (at >= kMostCollected) return;
      shared_.logits[at] = logit;
      shared_.ids[at] = id;
    });
    Mass sums[2] = {inside, outside};
    block_totals(sums, scratch_);
    all_ = sums[0] + sums[1];
    const bool fits = shared_.count <= kMostCollected;
    const bool by_count = row_.top_k > 0 && row_.top_k < row_.p.vocab && shared_.count >= row_.top_k;
    const bool by_mass =
        (row_.top_k <= 0 || row_.top_k >= row_.p.vocab) && row_.top_p < 1 && sums[1] <= droppable(all_);
    const bool by_least =
        row_.min_p >= fast_exp2(kLeastLog2) && row_.top_p >= 1 && (row_.top_k <= 0 || row_.top_k >= row_.p.vocab);
    collected_ = fits && (by_count || by_mass || by_least);
    outside_ = collected_ && by_mass ? sums[1] : 0;
    __syncthreads();
  }
  /// The probability mass that top_p may drop.
  __device__ Mass droppable(Mass all) const {
    return min(static_cast<Mass>((1.0 - static_cast<double>(row_.top_p)) * static_cast<double>(all)), all - 1);
  }

  __device__ void keep_top_k() {
    if (row_.top_k <= 0 || row_.top_k >= row_.p.vocab) return;
    bound_ = radix_threshold(static_cast<Mass>(row_.top_k), scratch_, [&](auto&& item) {
      visit([&](float logit, int) { item(order_key(logit), [] { return Mass{1}; }); });
    });
    Mass own = 0;
    visit([&](float logit, int) { own += order_key(logit) >= bound_ ? row_.mass(logit) : 0; });
    all_ = block_total(own, scratch_);
  }

  __device__ void keep_top_p() {
    if (row_.top_p >= 1 || all_ == 0) return;
    const uint32_t floor = bound_;
    const Mass to_drop = droppable(all_);
    const uint32_t bound = radix_threshold(all_ - to_drop, scratch_, [&](auto&& item) {
      visit([&](float logit, int) {
        const uint32_t key = order_key(logit);
        if (key >= floor) item(key, [&] { return row_.mass(logit); });
      });
    });
    bound_ = max(bound, floor);
    Mass sums[3] = {};  // mass below the bound, number of tokens on it, mass of one of these
    visit([&](float logit, int) {
      const uint32_t key = order_key(logit);
      if (key >= floor && key < bound_) sums[0] += row_.mass(logit);
      if (key != bound_) return;
      ++sums[1];
      sums[2] += row_.mass(logit);
    });
    block_totals(sums, scratch_);
    if (sums[1] == 0) return;
    const Mass each = sums[2] / sums[1];
    const Mass below = sums[0] + outside_;
    const Mass left = to_drop > below ? to_drop - below : 0;
    const Mass dropped = each == 0 ? 0 : min(left / each, sums[1] - 1);
    if (dropped == 0) return;
    const uint32_t key = radix_threshold(sums[1] - dropped, scratch_, [&](auto&& item) {
      visit([&](float logit, int id) {
        if (order_key(logit) == bound_) item(~static_cast<uint32_t>(id), [] { return Mass{1}; });
      });
    });
    last_on_bound_ = static_cast<int>(~key);
  }

  __device__ void keep_typical() {
    if (row_.typical_p >= 1) return;
    Mass sums[2] = {};  // Σ weight and Σ weight · −log2(weight)
    visit([&](float logit, int id) {
      if (!keeps(logit, id)) return;
      const float weight = row_.weight(logit);
      sums[0] += row_.mass(logit);
      if (weight > 0) sums[1] += static_cast<Mass>(weight * -row_.log2_weight(logit) * kMassUnit);
    });
    block_totals(sums, scratch_);
    if (sums[0] == 0) return;
    mean_log2_ = static_cast<float>(-static_cast<double>(sums[1]) / static_cast<double>(sums[0]));
    const auto enough = static_cast<Mass>(ceil(static_cast<double>(row_.typical_p) * static_cast<double>(sums[0])));
    typical_ = true;
    const uint32_t key = radix_threshold(enough, scratch_, [&](auto&& item) {
      visit([&](float logit, int id) {  // farthest_ is infinite during the search
        if (keeps(logit, id)) item(~__float_as_uint(distance(logit)), [&] { return row_.mass(logit); });
      });
    });
    farthest_ = __uint_as_float(~key);
  }

  const Row<T>& row_;
  FilterShared& shared_;
  Mass* scratch_;
  bool collected_ = false;
  bool typical_ = false;
  Mass all_ = 0;      // mass of the tokens kept by top_k
  Mass outside_ = 0;  // mass of the tokens that were not collected, which top_p drops
  uint32_t bound_ = 0;
  int last_on_bound_ = 0x7fffffff;
  float mean_log2_ = 0;
  float farthest_ = INFINITY;
};

}  // namespace lamina::ops::cuda::sampling
