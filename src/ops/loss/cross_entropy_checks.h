#pragma once

#include <cstdint>

#include "lamina/ops/loss/cross_entropy.h"

namespace lamina::ops {

/// Throws an Error that names `op` if an option is out of range.
void check_cross_entropy_options(const char* op, const CrossEntropyOptions& options);
/// Checks that targets is i64 and has the leading dimensions of `rows_of`, the logits or x.
void check_targets(const char* op, const Tensor& targets, const Tensor& rows_of);

/// Number of targets that are not ignored. Throws if one is neither a class nor ignore_index.
inline int64_t count_targets(const char* op, const int64_t* targets, int64_t rows, int64_t classes,
                             int64_t ignore_index) {
  int64_t count = 0;
  for (int64_t i = 0; i < rows; ++i) {
    if (targets[i] == ignore_index) continue;
    LAMINA_CHECK(targets[i] >= 0 && targets[i] < classes, op, ": target ", targets[i], " at position ", i,
                 " is outside [0, ", classes, ") and is not ignore_index ", ignore_index,
                 "; check the token ids against the vocabulary size");
    ++count;
  }
  return count;
}

}  // namespace lamina::ops
