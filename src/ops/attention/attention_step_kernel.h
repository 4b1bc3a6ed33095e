#pragma once

#include "lamina/ops/attention/attention_decode_kernel.h"
#include "lamina/ops/attention/attention_step.h"

namespace lamina::ops {

/// Kernel arguments. In `decode`, q is a view of the query heads of the packed projection, and `lengths` holds the
/// places in i64. The rotary tables are contiguous f32; if they are defined, so are the positions.
struct AttentionStep {
  AttentionDecode decode;
  StepRotation rotation;
};

namespace cuda {
void attention_step(const AttentionStep& args);
}  // namespace cuda

}  // namespace lamina::ops
