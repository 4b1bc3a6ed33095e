#pragma once

#include "lamina/nn/mixer.h"
#include "lamina/ops/attention/attention.h"

namespace lamina::nn {

/// Multi-head, grouped-query and multi-query attention, with every position encoding that acts on queries, keys or
/// scores.
std::unique_ptr<Mixer> make_attention(const arch::ArchSpec& spec, const arch::Attention& attention,
                                      const ParameterFactory& make, PositionTables& positions);

/// Up to this many new tokens, the work is split along the cache (attention_decode); above it, along the queries.
constexpr int64_t kDecodeQueries = 16;

/// Operator options common to all kinds of attention. Dropout comes from `pass`.
ops::AttentionOptions attention_options(double scale, std::optional<double> soft_cap, const arch::Pattern& pattern,
                                        ForwardContext& pass);

/// Converts an attention pattern (which keys a query may attend to) to the operator's form.
ops::AttentionPattern attention_pattern(const arch::Pattern& pattern);

}  // namespace lamina::nn
