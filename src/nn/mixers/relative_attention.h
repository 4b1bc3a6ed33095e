#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Attention with relative positions and segment-level memory (Transformer-XL, arXiv:1901.02860):
///   score(i, j) = scale · ((q_i + u) · k_j + (q_i + v) · r φ(i − j))
///   φ(t) = (sin t·w_0, …, sin t·w_{m−1}, cos t·w_0, …, cos t·w_{m−1}),  w_c = 10000^(−c/m),  m = d_model / 2
///   q, k, v, o as in attention; r [n_heads · head_dim, d_model]; u, v [n_heads, head_dim], shared by the layers
///   ("position.u", "position.v") or the layer's own ("u", "v_bias")
/// The position scores are never stored. With g = rᵀ(q_i + v), a vector of d_model per head, angle addition gives
///   g · φ(i − j) = turn_i(g) · ψ(j),  ψ(j) = (−sin j·w, cos j·w)
/// where turn_i rotates each pair (g_c, g_{c+m}) by i·w_c. So this is ordinary attention with queries (q_i + u,
/// turn_i(g)) and keys (k_j, ψ(j)) of width head_dim + d_model.
///
/// With a cache, the tokens of a call attend to each other and to the `memory` tokens before the call. Gradients flow
/// only into the call's own tokens.
std::unique_ptr<Mixer> make_relative_attention(const arch::ArchSpec& spec, const arch::Attention& attention,
                                               const ParameterFactory& make, PositionTables& positions);

}  // namespace lamina::nn
