#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

struct EmbeddingOptions {
  /// The table's first row is row `first_row` of a vocabulary of `vocab` rows that is spread over several tables
  /// (vocab 0: the table is the whole vocabulary). Ids of rows held elsewhere give zeros, so that the sum over the
  /// tables is the whole embedding.
  int64_t first_row = 0;
  int64_t vocab = 0;
  /// A row of the vocabulary that gets no gradient, as a token that only fills up batches has; negative: none.
  int64_t padding = -1;
};

/// y[...] = table[ids[...]]
///   table  [rows, width]   any floating type
///   ids    [...]           i64 or i32, each in [0, vocab); another value is an error that names it and its position
///   y      [..., width]    table's type, on the device of both
///
/// Backward: dtable[r] = Σ dy at the positions where ids is r, summed in the order of the positions in f32 (f64 for
/// f64), so that the bits depend on nothing else. The padding row gets none.
Tensor embedding(const Tensor& table, const Tensor& ids, const EmbeddingOptions& options = {});

/// What the kernels are given; `ids` is dense i64.
struct EmbeddingForward {
  Tensor table;
  Tensor ids;
  int64_t first_row;
  int64_t vocab;
  Tensor y;
};
struct EmbeddingBackward {
  Tensor ids;
  int64_t first_row;
  int64_t padding;  ///< the id that is passed over; negative: none
  Tensor dy;
  Tensor dtable;    ///< [rows, width] in dy's type or its accumulation type
  bool accumulate;  ///< add to what dtable holds instead of replacing it
};

namespace cpu {
void embedding_forward(const EmbeddingForward& args);
void embedding_backward(const EmbeddingBackward& args);
}  // namespace cpu
namespace cuda {
void embedding_forward(const EmbeddingForward& args);
void embedding_backward(const EmbeddingBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
