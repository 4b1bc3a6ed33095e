#pragma once

#include <vector>

#include "lamina/arch/position.h"

namespace lamina::nn {

/// RoPE frequencies at a given sequence length.
struct RopeFrequencies {
  std::vector<double> angles;     ///< radians per position for each of the rotary_dim/2 pairs
  double attention_factor = 1.0;  ///< multiplies cos and sin
};

/// Frequencies of a resolved RoPE for a sequence of `length` tokens. With d = rotary_dim and f_i = theta^(−2i/d):
///   linear       f_i / factor                                                                   arXiv:2306.15595
///   ntk          theta · factor^(d/(d−2)) for theta
///   dynamic_ntk  theta · (factor·L/original − (factor−1))^(d/(d−2)), L = max(length, original)
///   yarn         f_i · (1 − r_i + r_i / factor); r_i is a ramp from the pairs that rotate beta_fast times within
///                original_length to those that rotate beta_slow times                            arXiv:2309.00071
///   llama3       wavelengths above original/low: f_i / factor; below original/high: f_i; between: a blend
///   longrope     f_i / short_factor_i up to original_length, f_i / long_factor_i beyond          arXiv:2402.13753
RopeFrequencies rope_frequencies(const arch::Rope& rope, int64_t length);

/// Whether the frequencies depend on the sequence length.
bool depends_on_length(const arch::RopeScaling& scaling);

}  // namespace lamina::nn
