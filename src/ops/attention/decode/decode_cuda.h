#pragma once

#include "lamina/ops/attention/attention_step_kernel.h"

namespace lamina::ops::cuda {

struct DecodeCall {
  const AttentionDecode& args;
  const StepRotation* step = nullptr;  ///< the rotation of a step's new token, which is also stored
};

/// How the splits of a KV cache are merged, and how it is read; cuda/attention_dispatch_cuda.cu explains the forms.
enum class DecodeForm { clusters, splits, any_width };

/// Returns false and does nothing if the form does not support the call.
bool decode_in(DecodeForm form, const DecodeCall& call);

}  // namespace lamina::ops::cuda
