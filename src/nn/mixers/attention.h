#pragma once

#include "lamina/nn/mixer.h"
#include "lamina/ops/attention/attention.h"

namespace lamina::nn {

/// Multi-head, grouped-query and multi-query attention with every position kind that works on queries, keys or scores.
std::unique_ptr<Mixer> make_attention(const arch::ArchSpec& spec, const arch::Attention& attention,
                                      const ParameterFactory& make, PositionTables& positions);

/// Up to so many new tokens the work is split along the cache (attention_decode); above, along the queries.
constexpr int64_t kDecodeQueries = 16;

/// What every kind of attention takes from its settings, and its dropout from the pass.
ops::AttentionOptions attention_options(double scale, std::optional<double> soft_cap, const arch::Pattern& pattern,
                                        Pass& pass);

/// The operator's view of which keys a query sees.
ops::AttentionPattern attention_pattern(const arch::Pattern& pattern);

}  // namespace lamina::nn
