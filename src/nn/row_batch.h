#pragma once

#include <optional>
#include <vector>

#include "lamina/nn/forward_context.h"
#include "lamina/ops/attention/paged/paged_cache.h"

namespace lamina::nn {

/// The rows of one step of Model::row_logits. A row is one sequence. It contributes one token (decoding), a few tokens
/// (speculation) or a chunk of its prompt. The new tokens of all rows are concatenated without padding. Tensors are on
/// the model's device; a captured CUDA graph reads them at the same addresses in every replay.
struct RowBatch {
  /// Page tables, one entry per page group (SequenceCache::groups). All entries share the tensors of lengths and
  /// starts.
  std::vector<ops::PagedRows> groups;
  Tensor positions;  ///< [tokens] i64: position of each token in its sequence
  Tensor slots;      ///< [rows] i32: each row's slot for recurrent states; only if SequenceCache::has_states()
  /// Per row: number of new tokens, and number of tokens cached before. Both are empty if the step is captured as a
  /// CUDA graph: then every row has exactly one token, and only device memory holds its position.
  std::vector<int32_t> host_counts;
  std::vector<int32_t> host_offsets;
  /// Without host counts: the most tokens that a row can have in any such step. Tables of positions then never grow, so
  /// a captured graph can keep reading them. 0: what this step's page tables hold.
  int64_t context = 0;
  /// Data type of the residual stream and everything computed from it. Empty: the type of the embedding table.
  std::optional<DType> activations;

  /// The number of rows. Without host counts: the number of tokens, because each row then has one.
  int64_t rows() const { return host_counts.empty() ? positions.dim(0) : static_cast<int64_t>(host_counts.size()); }
  /// Whether every row has exactly one new token.
  bool is_decode() const;
};

/// Consecutive rows [first, first + count) of a step and their tokens [token, token + tokens).
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t token = 0;
  int64_t tokens = 0;
};

/// Splits the rows of a step into maximal ranges of consecutive rows with equal `kind`(row). Needs host counts; without
/// them (a decode step) all rows form one range.
template <class Kind>
std::vector<RowRange> row_ranges(const RowBatch& rows, const Kind& kind) {
  if (rows.host_counts.empty()) return {{0, rows.rows(), 0, rows.rows()}};
  std::vector<RowRange> ranges;
  int64_t token = 0;
  for (size_t i = 0; i < rows.host_counts.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    if (ranges.empty() || kind(row) != kind(row - 1)) ranges.push_back({row, 0, token, 0});
    ++ranges.back().count;
    ranges.back().tokens += rows.host_counts[i];
    token += rows.host_counts[i];
  }
  return ranges;
}

/// The page tables of a range of rows. `starts` then counts from the range's first token.
ops::PagedRows slice_rows(const ops::PagedRows& all, const RowRange& range);

/// The context of one row alone, as if it were the only row of a batch.
ForwardContext sequence_of(const ForwardContext& pass, int64_t row);

}  // namespace lamina::nn
