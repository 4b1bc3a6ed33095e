#pragma once

#include "lamina/ops/elementwise/scatter_rows.h"

namespace lamina::ops {

/// Kernel arguments as in scatter_rows_(), all contiguous; indices are i64.
struct ScatterRows {
  Tensor table;
  Tensor indices;
  Tensor rows;
};
namespace cpu {
void scatter_rows_(const ScatterRows& args);
}  // namespace cpu
namespace cuda {
void scatter_rows_(const ScatterRows& args);
}  // namespace cuda

}  // namespace lamina::ops
