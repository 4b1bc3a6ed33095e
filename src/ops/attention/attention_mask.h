#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "lamina/ops/attention/attention.h"

namespace lamina::ops {

/// Who sees whom in one call of attention: causality, documents and pattern together. Queries and keys are named by
/// their index; query i stands at position i + seq_k − seq_q.
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
  /// The keys a query may see lie in this range; both ends never fall from one query to the next.
  Range keys(int64_t query) const;
  /// The queries that may see a key lie in this range.
  Range queries(int64_t key) const;
  /// keys() says everything: no pattern with holes.
  bool ranges_suffice() const { return ranges_suffice_; }
  /// What a tile of queries [q0, q1) and keys [k0, k1), neither empty, holds. `none` and `full` are certain.
  Coverage coverage(int64_t q0, int64_t q1, int64_t k0, int64_t k1) const;
  /// How many pairs a mask made of these allows; for patterns of blocks at most as many as said. Of long sequences
  /// every so many-th query is counted for its neighbours.
  static double pairs(const AttentionOptions& options, int64_t seq_q, int64_t seq_k,
                      const std::vector<int64_t>& document_starts = {});

  /// 0 where query and key may meet, else −inf: for one key and queries from q0 on, or for one query and keys.
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
  bool allows_blocks(size_t document, int64_t query_block, int64_t key_block) const;
  /// Of positions within the document.
  Coverage pattern_coverage(size_t document, int64_t q0, int64_t q1, int64_t k0, int64_t k1) const;
  Coverage block_coverage(size_t document, int64_t q0, int64_t q1, int64_t k0, int64_t k1) const;
  void draw_random_blocks();
  double pairs_of(int64_t query) const;

  AttentionPattern pattern_;
  bool causal_;
  bool ranges_suffice_;
  int64_t seq_q_;
  int64_t seq_k_;
  int64_t offset_;                       // position of query 0
  std::vector<int64_t> starts_;          // of the documents, and the end of the last
  std::vector<int32_t> document_index_;  // per position; empty for one document
  // Random blocks, drawn once: those of a document's query block are random_blocks_[random_begin_[row] ...), sorted,
  // where row = first_row_[document] + query block.
  std::vector<int64_t> random_blocks_;
  std::vector<int64_t> random_begin_;
  std::vector<int64_t> first_row_;
};

}  // namespace lamina::ops
