#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Options of embedding().
struct EmbeddingOptions {
  /// For a vocabulary split over several tables (tensor parallel): this table holds the rows from `first_row` on, out
  /// of `vocab`. Ids of other tables give zeros, so the sum of all tables' results is the embedding. vocab 0: this
  /// table holds the whole vocabulary.
  int64_t first_row = 0;
  int64_t vocab = 0;  ///< rows of all tables, see first_row
  /// An id whose row gets no gradient, such as the padding token's; negative: none.
  int64_t padding = -1;
};

/// Looks up table rows: y[...] = table[ids[...] − first_row], zeros if another table holds the row.
///   table  [rows, width]   any floating type
///   ids    [...]           i64 or i32, each in [0, vocab); otherwise an error that names the id and its position
///   y      [..., width]    table's type
///
/// Backward: dtable[r] = Σ dy over the positions with id r, summed in position order in f32 (f64 for f64), so it is
/// deterministic. The padding row gets no gradient.
Tensor embedding(const Tensor& table, const Tensor& ids, const EmbeddingOptions& options = {});

}  // namespace lamina::ops
