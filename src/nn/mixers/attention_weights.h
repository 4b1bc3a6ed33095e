#pragma once

#include "lamina/nn/forward_context.h"
#include "lamina/ops/attention/attention.h"

namespace lamina::nn {

/// Whether the observer of this pass wants the attention weights of the running layer.
bool observes_attention(const ForwardContext& pass);

/// Passes the weights of ops::attention(q, k, …) to the observer, if it wants them. Attention with rows of an identity
/// matrix as values returns its weights; so they include every bias, pattern, cap and sink of the call.
void offer_attention(const Tensor& q, const Tensor& k, const ops::AttentionOptions& options,
                     const ops::AttentionExtras& extras, const ForwardContext& pass);

}  // namespace lamina::nn
