#pragma once

#include "lamina/ops/attention/attention_step_kernel.h"

namespace lamina::ops::cuda {

/// A call of attention_decode() or attention_step() on CUDA.
struct DecodeCall {
  const AttentionDecode& args;
  /// Null for attention_decode(); else the rotation of the step, which also stores the new token.
  const StepRotation* step = nullptr;
};

/// How the splits of a KV cache are merged, and how the cache is read. cuda/attention_dispatch_cuda.cu explains the
/// forms.
enum class DecodeForm { clusters, splits, any_width };

/// Runs the call in this form. Returns false, without doing anything, if the form does not support it.
bool decode_in(DecodeForm form, const DecodeCall& call);

}  // namespace lamina::ops::cuda
