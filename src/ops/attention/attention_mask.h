#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "lamina/ops/attention/attention.h"

namespace lamina::ops {

/// The complete mask of one attention call: causal mask, documents and pattern. Queries and keys are given by index;
/// query i is at position i + seq_k − seq_q.
class AttentionMask {
 public:
  enum class Coverage { none, partial, full };
  struct Range {
    int64_t begin;
    int64_t end;
  };

  AttentionMask(const AttentionOptions& options, int64_t seq_q, int64_t seq_k,
                const std::vector<int64_t>& document_starts = {});

  bool allows(int64_t query, int64_t key) const;
  /// A range that contains all keys that a query may see. Both ends are non-decreasing in the query.
  Range keys(int64_t query) const;
  /// A range that contains all queries that may see a key.
  Range queries(int64_t key) const;
  /// True if keys() describes the mask exactly, i.e. the pattern has no holes.
  bool is_contiguous_range() const { return is_contiguous_range_; }
  /// Visibility of the tile of queries [q0, q1) × keys [k0, k1), neither of them empty. `none` and `full` are exact.
  Coverage coverage(int64_t q0, int64_t q1, int64_t k0, int64_t k1) const;
  /// Number of visible (query, key) pairs; an upper bound for block patterns. Long sequences are sampled at regular
  /// intervals.
  static double pairs(const AttentionOptions& options, int64_t seq_q, int64_t seq_k,
                      const std::vector<int64_t>& document_starts = {});

  /// Writes 0 for each visible pair and −inf for the others: for one key and queries from q0 on, or for one query and
  /// keys from k0 on.
  template <class T>
  void fill_queries(int64_t key, int64_t q0, int64_t count, T* out) const {
    for (int64_t i = 0; i < count; ++i) out[i] = allows(q0 + i, key) ? T{0} : -std::numeric_limits<T>::infinity();
  }
  template <class T>
  void fill_keys(int64_t query, int64_t k0, int64_t count, T* out) const {
    for (int64_t i = 0; i < count; ++i) out[i] = allows(query, k0 + i) ? T{0} : -std::numeric_limits<T>::infinity();
  }

 private:
  struct RangesAlone {};
  AttentionMask(RangesAlone, const AttentionOptions& options, int64_t seq_q, int64_t seq_k,
                const std::vector<int64_t>& document_starts);

  size_t document_of(int64_t position) const;
  Range document(int64_t position) const;
  /// Number of blocks in a document.
  int64_t blocks_of(size_t document) const;
  bool allows_blocks(size_t document, int64_t query_block, int64_t key_block) const;
  /// Coverage by the pattern within one document. Positions are relative to its start.
  Coverage pattern_coverage(size_t document, int64_t q0, int64_t q1, int64_t k0, int64_t k1) const;
  Coverage block_coverage(size_t document, int64_t q0, int64_t q1, int64_t k0, int64_t k1) const;
  void draw_random_blocks();
  double pairs_of(int64_t query) const;

  AttentionPattern pattern_;
  bool causal_;
  bool is_contiguous_range_;
  int64_t seq_q_;
  int64_t seq_k_;
  int64_t offset_;                       // position of query 0
  std::vector<int64_t> starts_;          // start of each document, and the end of the last
  std::vector<int32_t> document_index_;  // document of each position; empty if there is only one
  // Random blocks, drawn once. The sorted blocks of a query block are random_blocks_[random_begin_[row] …
  // random_begin_[row + 1]) with row = first_row_[document] + query block.
  std::vector<int64_t> random_blocks_;
  std::vector<int64_t> random_begin_;
  std::vector<int64_t> first_row_;
};

}  // namespace lamina::ops
