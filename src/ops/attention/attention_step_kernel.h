#pragma once

#include "lamina/ops/attention/attention_decode_kernel.h"
#include "lamina/ops/attention/attention_step.h"

namespace lamina::ops {

/// Kernel arguments: those of attention_decode, with q the first heads of the packed projection and `lengths` the
/// places in i64. Tables are contiguous f32; positions are defined if there are tables.
struct AttentionStep {
  AttentionDecode decode;
  StepRotation rotation;
};

namespace cuda {
void attention_step(const AttentionStep& args);
}  // namespace cuda

}  // namespace lamina::ops
