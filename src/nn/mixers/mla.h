#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Multi-head latent attention (arXiv:2405.04434): keys and values of all heads are expanded from one latent per token,
/// beside which a key part of qk_rope that all heads share carries the position. With d = d_model, h heads:
///   q = q_up(norm(q_down(x))) or q(x)     [h · (qk_nope + qk_rope), …], a head's rotated part last
///   (l, r) = kv_down(x)                   [kv_lora_rank + qk_rope, d];  l is normed, r rotated
///   (k_nope, v) = kv_up(l)                [h · (qk_nope + v_head_dim), kv_lora_rank], a head's key before its value
///   score = scale · (q_nope · k_nope + q_rope · r)
/// The cache holds l and r alone. Few queries are brought to the latents instead of expanding these: with kv_up's rows
/// of a head as K and V, q_nope · (K l) = (Kᵀ q_nope) · l and Σ p · (V l) = V Σ p · l, which is attention with a single
/// key head (kept, l with r) for all queries.
std::unique_ptr<Mixer> make_mla(int64_t d_model, const arch::Mla& spec, const ParameterFactory& make,
                                PositionTables& positions);

}  // namespace lamina::nn
