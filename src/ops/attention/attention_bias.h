#pragma once

#include "lamina/ops/attention/attention.h"

namespace lamina::ops {

/// T5 bucket of a distance (key position − query position). If `bidirectional`, earlier and later keys have half of the
/// buckets each. Half of a direction's buckets hold one distance each; the others grow logarithmically up to
/// max_distance.
int64_t t5_bucket(int64_t distance, bool bidirectional, int64_t buckets, int64_t max_distance);

/// Table of the ALiBi and T5 biases. They depend only on i − j, so there is one number per head and distance. Kernels
/// read consecutive entries for consecutive queries or keys.
struct DistanceBias {
  Tensor by_query;  ///< [n_heads, stride], accumulation type, ascending in i; undefined if there is no bias
  Tensor by_key;    ///< the same values in reverse order: ascending in j
  int64_t seq_q = 0;
  int64_t seq_k = 0;

  /// Entries on both ends of a row that kernels may read but not use.
  static constexpr int64_t kPadding = 128;

  /// Address of the bias of (head, query i, key j). The biases of queries i + 1, i + 2, … follow.
  template <class T>
  const T* queries(int64_t head, int64_t i, int64_t j) const {
    return by_query.data<T>() + head * by_query.dim(1) + kPadding + i - j + seq_k - 1;
  }
  template <class T>
  /// Address of the bias of (head, query i, key j). The biases of keys j + 1, j + 2, … follow.
  const T* keys(int64_t head, int64_t i, int64_t j) const {
    return by_key.data<T>() + head * by_key.dim(1) + kPadding + j - i + seq_q - 1;
  }
};

/// Builds the tables; they are undefined if the extras have neither ALiBi slopes nor a T5 bias.
DistanceBias distance_bias(const AttentionOptions& options, const AttentionExtras& extras, int64_t n_heads,
                           int64_t seq_q, int64_t seq_k);

}  // namespace lamina::ops
