#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Multi-head latent attention (arXiv:2405.04434): keys and values of all heads are expanded from one latent per token.
/// RoPE applies to a separate key part of width qk_rope, which all heads share. With d = d_model and h heads:
///   q = q_up(norm(q_down(x))) or q(x)     [h · (qk_nope + qk_rope), …], rotated part last in each head
///   (l, r) = kv_down(x)                   [kv_lora_rank + qk_rope, d];  l is normalized, r rotated
///   (k_nope, v) = kv_up(l)                [h · (qk_nope + v_head_dim), kv_lora_rank], key before value in each head
///   score = scale · (q_nope · k_nope + q_rope · r)
/// The cache holds only l and r. For few queries, the up-projection is absorbed instead of expanding the latents. With
/// a head's rows of kv_up as K and V: q_nope · (K l) = (Kᵀ q_nope) · l, and Σ p · (V l) = V Σ p · l. That is
/// multi-query attention whose only KV head is the cached (l, r).
std::unique_ptr<Mixer> make_mla(int64_t d_model, const arch::Mla& spec, const ParameterFactory& make,
                                PositionTables& positions);

}  // namespace lamina::nn
