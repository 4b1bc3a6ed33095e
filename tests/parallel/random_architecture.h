#pragma once

#include "lamina/arch/spec.h"
#include "lamina/base/philox.h"

namespace lamina::testing {

/// Random choices of a property test.
class Draw {
 public:
  explicit Draw(uint64_t seed) : key_{seed, 5} {}
  int64_t below(int64_t n) { return philox_word(key_, next_++) % static_cast<uint32_t>(n); }
  bool coin() { return below(2) == 0; }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

inline arch::Ffn random_ffn(Draw& draw, int64_t ranks) {
  const int64_t d_ff = ranks + draw.below(20);
  const bool bias = draw.coin();
  if (draw.below(3) == 0) {
    arch::PlainFfn plain{.d_ff = d_ff, .bias = bias};
    if (draw.coin()) plain.xielu = arch::Xielu{};
    return plain;
  }
  if (draw.coin()) return arch::GatedFfn{.d_ff = d_ff, .bias = bias};
  arch::Moe moe;
  moe.experts = 3;
  moe.top_k = 2;
  moe.expert = arch::GatedFfn{.d_ff = d_ff, .bias = bias};
  moe.shared_experts = draw.below(2);
  moe.shared_gate = moe.shared_experts > 0 && draw.coin();
  moe.weigh_inputs = draw.coin();
  if (draw.coin()) moe.score = arch::RouterScore::softmax_of_near;
  moe.near = 0.8;
  moe.balance_loss = 0.1;
  moe.z_loss = 0.01;
  return moe;
}

inline arch::Mixer random_state_space(Draw& draw, int64_t ranks) {
  if (draw.coin()) {
    arch::Mamba mamba{.state = 3, .d_inner = ranks + draw.below(7), .dt_rank = 2, .bias = draw.coin()};
    mamba.conv_bias = draw.coin();
    if (draw.coin()) mamba.norm = arch::RmsNorm{};
    return mamba;
  }
  // Whole groups on every rank, or ranks that share a group.
  arch::Mamba2 mamba{.state = 3, .head_dim = 2, .groups = draw.coin() ? ranks : 1, .chunk = 4};
  mamba.d_inner = 2 * ranks * (1 + draw.below(2));
  mamba.bias = draw.coin();
  mamba.conv_bias = draw.coin();
  const arch::GatedNorm norms[] = {arch::GatedNorm::none, arch::GatedNorm::before_gate, arch::GatedNorm::after_gate};
  mamba.norm = norms[draw.below(3)];
  mamba.norm_groups = ranks;
  return mamba;
}

inline arch::Mixer random_mixer(Draw& draw, int64_t ranks) {
  if (draw.below(5) == 0) return random_state_space(draw, ranks);
  if (draw.below(4) == 0) {
    arch::Mla mla;
    mla.n_heads = ranks + draw.below(3);
    mla.kv_lora_rank = 6;
    mla.qk_nope = 4;
    mla.qk_rope = 2;
    mla.v_head_dim = 4;
    if (draw.coin()) mla.q_lora_rank = 5;
    mla.bias = draw.coin();
    return mla;
  }
  arch::Attention a;
  // Either at least one KV head per rank, or ranks that share KV heads.
  const bool shares = ranks > 1 && draw.coin();
  a.n_kv_heads = shares ? 1 : ranks + draw.below(3);
  a.n_heads = *a.n_kv_heads * (shares ? ranks + draw.below(3) : 1 + draw.below(3));
  a.head_dim = 4;
  a.bias = {draw.coin(), draw.coin(), draw.coin(), draw.coin()};
  a.sinks = draw.coin();
  if (draw.coin()) {
    a.qk_norm = arch::PerHeadQkNorm{.norm = {}, .own_weights = draw.coin(), .after_rope = draw.coin()};
  }
  if (draw.coin()) a.pattern = arch::WindowPattern{.size = 4};
  if (draw.coin()) a.temperature = arch::QueryTemperature{.scale = 0.5, .interval = 3};
  if (draw.coin()) a.soft_cap = 5.0;
  return a;
}

inline arch::ArchSpec random_architecture(Draw& draw, int64_t ranks) {
  arch::ArchSpec spec;
  spec.vocab_size = ranks + 10 + draw.below(30);
  spec.d_model = 8;
  spec.context = 16;
  if (draw.coin()) spec.norm = arch::LayerNorm{};
  if (draw.coin()) spec.position = arch::LearnedPosition{};
  spec.head.tied = draw.coin();
  spec.head.bias = draw.coin();
  if (draw.coin()) spec.head.soft_cap = 3.0;
  if (draw.coin()) spec.embedding.d_embed = 6;
  if (draw.coin()) spec.embedding.norm = arch::LayerNorm{};
  for (int64_t i = 0; i < 2; ++i) {
    arch::Block block;
    block.mixer = random_mixer(draw, ranks);
    block.ffn = random_ffn(draw, ranks);
    const arch::Placement placements[] = {arch::Placement::pre, arch::Placement::post, arch::Placement::sandwich};
    block.placement = placements[draw.below(3)];
    if (draw.below(3) == 0) block.wiring = arch::ParallelWiring{.shared_norm = draw.coin()};
    spec.layers.push_back({1, {block}});
  }
  return spec;
}

}  // namespace lamina::testing
