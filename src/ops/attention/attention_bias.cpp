#include "lamina/ops/attention/attention_bias.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace lamina::ops {

int64_t t5_bucket(int64_t distance, bool bidirectional, int64_t buckets, int64_t max_distance) {
  int64_t first = 0;
  if (bidirectional) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  } else {
    distance = std::max<int64_t>(-distance, 0);
  }
  const int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  const double share = std::log(static_cast<double>(distance) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  // Without the epsilon, a distance exactly on a bucket boundary may be rounded down to the bucket below.
  const auto step = static_cast<int64_t>(share * static_cast<double>(buckets - exact) + 1e-9);
  return first + std::min(exact + step, buckets - 1);
}

namespace {

template <class T>
void tabulate(const AttentionOptions& options, const AttentionExtras& extras, DistanceBias& bias) {
  const int64_t heads = bias.by_query.dim(0);
  const int64_t count = bias.seq_q + bias.seq_k - 1;
  const T* slopes = extras.alibi_slopes.defined() ? extras.alibi_slopes.data<T>() : nullptr;
  const T* table = extras.t5_bias.defined() ? extras.t5_bias.data<T>() : nullptr;
  const int64_t buckets = table != nullptr ? extras.t5_bias.dim(0) : 0;
  bias.by_query.fill_(0.0);
  bias.by_key.fill_(0.0);
  for (int64_t n = 0; n < count; ++n) {
    const int64_t distance = bias.seq_q - 1 - n;  // key position − query position; n = i − j + seq_k − 1
    const int64_t bucket =
        table != nullptr ? t5_bucket(distance, !options.causal, buckets, options.t5_max_distance) : 0;
    for (int64_t head = 0; head < heads; ++head) {
      T value = 0;
      if (slopes != nullptr) value -= slopes[head] * static_cast<T>(std::abs(distance));
      if (table != nullptr) value += table[bucket * heads + head];
      const int64_t row = head * bias.by_query.dim(1) + DistanceBias::kPadding;
      bias.by_query.data<T>()[row + n] = value;
      bias.by_key.data<T>()[row + count - 1 - n] = value;
    }
  }
}

}  // namespace

DistanceBias distance_bias(const AttentionOptions& options, const AttentionExtras& extras, int64_t n_heads,
                           int64_t seq_q, int64_t seq_k) {
  DistanceBias bias;
  const Tensor& given = extras.alibi_slopes.defined() ? extras.alibi_slopes : extras.t5_bias;
  if (!given.defined() || seq_q == 0 || seq_k == 0) return bias;
  bias.seq_q = seq_q;
  bias.seq_k = seq_k;
  const Shape shape{n_heads, seq_q + seq_k - 1 + 2 * DistanceBias::kPadding};
  bias.by_query = Tensor::empty(shape, given.dtype(), given.device());
  bias.by_key = Tensor::empty(shape, given.dtype(), given.device());
  visit_floating(given.dtype(), [&](auto tag) {
    using T = Accumulate<typename decltype(tag)::type>;
    tabulate<T>(options, extras, bias);
  });
  return bias;
}

}  // namespace lamina::ops
