#pragma once

#include "lamina/nn/mixer.h"
#include "lamina/ops/attention/attention.h"

namespace lamina::nn {

/// Multi-head, grouped-query and multi-query attention with every position kind that works on queries, keys or scores.
std::unique_ptr<Mixer> make_attention(const arch::ArchSpec& spec, const arch::Attention& attention,
                                      const ParameterFactory& make, PositionTables& positions);

/// The operator's view of which keys a query sees.
ops::AttentionPattern attention_pattern(const arch::Pattern& pattern);

}  // namespace lamina::nn
