#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Options of embedding().
struct EmbeddingOptions {
  /// For a vocabulary split over several tables: this table holds rows from `first_row` on of a vocabulary of `vocab`
  /// rows (vocab 0: the table is the whole vocabulary). Ids of other tables give zeros, so the sum over the tables is
  /// the embedding.
  int64_t first_row = 0;
  int64_t vocab = 0;  ///< see first_row
  /// A vocabulary row without gradient, such as the padding token's; negative: none.
  int64_t padding = -1;
};

/// y[...] = table[ids[...]]
///   table  [rows, width]   any floating type
///   ids    [...]           i64 or i32, each in [0, vocab); any other value is an error that names it and its position
///   y      [..., width]    table's type, on the device of both
///
/// Backward: dtable[r] = Σ dy over the positions with id r, summed in position order in f32 (f64 for f64), so it is
/// deterministic. The padding row gets no gradient.
Tensor embedding(const Tensor& table, const Tensor& ids, const EmbeddingOptions& options = {});

}  // namespace lamina::ops
