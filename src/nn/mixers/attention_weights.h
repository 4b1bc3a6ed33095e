#pragma once

#include "lamina/nn/forward_context.h"
#include "lamina/ops/attention/attention.h"

namespace lamina::nn {

/// Whether the observer of this pass wants the attention weights of the layer that runs.
bool observes_attention(const ForwardContext& pass);

/// Gives the observer the weights of ops::attention(q, k, …), if it wants them. The weights are what attention returns
/// for values that are rows of an identity matrix, so they include every bias, pattern, cap and sink of the call.
void offer_attention(const Tensor& q, const Tensor& k, const ops::AttentionOptions& options,
                     const ops::AttentionExtras& extras, const ForwardContext& pass);

}  // namespace lamina::nn
