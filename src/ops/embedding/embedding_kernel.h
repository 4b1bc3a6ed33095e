#pragma once

#include "lamina/ops/embedding/embedding.h"

namespace lamina::ops {

/// Kernel arguments, shaped as in embedding(); `ids` is contiguous i64.
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
  int64_t padding;  ///< id to skip; negative: none
  Tensor dy;
  Tensor dtable;    ///< [rows, width] in dy's dtype or its accumulation type
  bool accumulate;  ///< add to dtable instead of overwriting it
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
