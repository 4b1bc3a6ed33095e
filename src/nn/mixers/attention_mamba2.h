#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Attention and Mamba-2 on the same input, each with a factor on its input and its output:
///   y = attention_out · attention(attention_in · x) + mamba2_out · mamba2(mamba2_in · x)
/// Parameters have the names of both mixers. Its cache holds keys and values and a state.
std::unique_ptr<Mixer> make_attention_mamba2(const arch::AttentionMamba2& spec, std::unique_ptr<Mixer> attention,
                                             std::unique_ptr<Mixer> mamba2);

}  // namespace lamina::nn
