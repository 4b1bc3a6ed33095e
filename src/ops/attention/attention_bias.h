#pragma once

#include "lamina/ops/attention/attention.h"

namespace lamina::ops {

/// The T5 bucket of a distance, key position − query position. Half of the buckets (of each direction's buckets, when
/// `bidirectional`) hold one distance each, the others grow logarithmically up to max_distance.
int64_t t5_bucket(int64_t distance, bool bidirectional, int64_t buckets, int64_t max_distance);

/// What ALiBi and T5 add to the score of query i and key j depends on i − j only: one number per head and distance,
/// tabulated so that kernels read a run of them for a run of queries or keys.
struct DistanceBias {
  Tensor by_query;  ///< [n_heads, stride] of the accumulation type, undefined without bias; rises with i
  Tensor by_key;    ///< the same mirrored: rises with j
  int64_t seq_q = 0;
  int64_t seq_k = 0;

  /// Numbers readable beyond either end of a row, whose values mean nothing.
  static constexpr int64_t kPadding = 128;

  /// Address of the bias of head, query i and key j; the next queries' follow.
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
