#pragma once

#include "lamina/ops/attention/paged/paged_attention_kernel.h"
#include "lamina/ops/attention/paged/paged_step.h"

namespace lamina::ops {

/// Kernel arguments. `decode.q` is a view of the n_heads query heads of the packed projection [rows, n_heads + 2
/// n_kv_heads, d]. Rotary tables are contiguous f32, or undefined.
struct PagedStep {
  PagedDecode decode;
  StepRotation rotation;
  /// True if the kernel launched just before writes neither the tables nor the cache. Both may then be read before it
  /// ends.
  bool settled = false;
};
namespace cuda {
/// Runs the step in one launch. If the kernel does not support the case, `done` stays false and nothing is written.
void paged_attention_step(const PagedStep& args, bool& done);
}  // namespace cuda

}  // namespace lamina::ops
