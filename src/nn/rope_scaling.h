#pragma once

#include <vector>

#include "lamina/arch/position.h"

namespace lamina::nn {

/// How a rotation turns at a given length.
struct RopeFrequencies {
  std::vector<double> angles;     ///< per position, one for each of the rotary_dim/2 pairs
  double attention_factor = 1.0;  ///< on cos and sin
};

/// The frequencies of a resolved rotation for a sequence of `length` tokens. With d = rotary_dim and f_i =
/// theta^(−2i/d):
///   linear       f_i / factor                                                                   arXiv:2306.15595
///   ntk          theta · factor^(d/(d−2)) for theta
///   dynamic_ntk  theta · (factor·L/original − (factor−1))^(d/(d−2)), L = max(length, original)
///   yarn         f_i · (1 − r_i + r_i / factor), r_i a ramp over the pairs from those that turn beta_fast times within
///                original_length to those that turn beta_slow times                              arXiv:2309.00071
///   llama3       wavelengths above original/low: f_i / factor; below original/high: f_i; between: a blend
///   longrope     f_i / short_factor_i up to original_length, f_i / long_factor_i beyond          arXiv:2402.13753
RopeFrequencies rope_frequencies(const arch::Rope& rope, int64_t length);

/// Whether the frequencies change with the length.
bool depends_on_length(const arch::RopeScaling& scaling);

}  // namespace lamina::nn
