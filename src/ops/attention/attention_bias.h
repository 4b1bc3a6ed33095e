#pragma once

#include "lamina/ops/attention/attention.h"

namespace lamina::ops {

/// T5 bucket of a distance (key position − query position). Half of the buckets (per direction if `bidirectional`) hold
/// one distance each; the others grow logarithmically up to max_distance.
int64_t t5_bucket(int64_t distance, bool bidirectional, int64_t buckets, int64_t max_distance);

/// ALiBi and T5 add a bias that depends only on i − j: one number per head and distance, tabulated so that kernels read
/// consecutive entries for consecutive queries or keys.
struct DistanceBias {
  Tensor by_query;  ///< [n_heads, stride], accumulation type, undefined without bias; ascending in i
  Tensor by_key;    ///< the same values mirrored: ascending in j
  int64_t seq_q = 0;
  int64_t seq_k = 0;

  /// Padding on both ends of a row that may be read; its values are not used.
  static constexpr int64_t kPadding = 128;

  /// Address of the bias of (head, query i, key j); the following queries come next.
  template <class T>
  const T* queries(int64_t head, int64_t i, int64_t j) const {
    return by_query.data<T>() + head * by_query.dim(1) + kPadding + i - j + seq_k - 1;
  }
  template <class T>
  const T* keys(int64_t head, int64_t i, int64_t j) const {
    return by_key.data<T>() + head * by_key.dim(1) + kPadding + j - i + seq_q - 1;
  }
};

DistanceBias distance_bias(const AttentionOptions& options, const AttentionExtras& extras, int64_t n_heads,
                           int64_t seq_q, int64_t seq_k);

}  // namespace lamina::ops
