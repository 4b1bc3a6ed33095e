#include "lamina/arch/weights.h"

#include "lamina/arch/layers.h"
#include "lamina/arch/weight_list.h"

namespace lamina::arch {
namespace {

void add(WeightList& list, const Attention& a, int64_t d_model) {
  const int64_t q = a.n_heads * *a.head_dim;
  const int64_t k = *a.n_kv_heads * *a.head_dim;
  const int64_t v = *a.n_kv_heads * *a.v_head_dim;
  const Division by_head = divided_rows(a.n_heads, *a.n_kv_heads);
  const Division by_kv_head = divided_rows(*a.n_kv_heads, *a.n_kv_heads);
  list.linear("mixer.q", "q", q, d_model, a.bias.q, by_head);
  list.linear("mixer.k", "k", k, d_model, a.bias.k, by_kv_head);
  list.linear("mixer.v", "v", v, d_model, a.bias.v, by_kv_head);
  if (a.gate) list.linear("mixer.gate", "output gate", a.n_heads * *a.v_head_dim, d_model, false, by_head);
  if (const auto* per_head = std::get_if<PerHeadQkNorm>(&a.qk_norm)) {
    const bool own = per_head->own_weights;
    list.norm("mixer.q_norm", "qk norm", *per_head->norm, own ? q : *a.head_dim, own ? by_head : Division{});
    list.norm("mixer.k_norm", "qk norm", *per_head->norm, own ? k : *a.head_dim, own ? by_kv_head : Division{});
  }
  if (const auto* whole = std::get_if<WholeQkNorm>(&a.qk_norm)) {
    list.norm("mixer.q_norm", "qk norm", *whole->norm, q, by_head);
    list.norm("mixer.k_norm", "qk norm", *whole->norm, k, by_kv_head);
  }
  const auto* longformer = std::get_if<LongformerPattern>(&a.pattern);
  if (longformer != nullptr && longformer->global_projections) {
    list.linear("mixer.global_q", "global q k v", q, d_model, a.bias.q, by_head);
    list.linear("mixer.global_k", "global q k v", k, d_model, a.bias.k, by_kv_head);
    list.linear("mixer.global_v", "global q k v", v, d_model, a.bias.v, by_kv_head);
  }
  if (a.sinks) list.table("mixer.sinks", "sinks", {a.n_heads}, by_head);
  if (const auto* t5 = std::get_if<T5Bias>(&*a.position); t5 != nullptr && !t5->shared) {
    list.table("mixer.position.weight", "relative positions", {t5->buckets, a.n_heads},
               divided_columns(a.n_heads, *a.n_kv_heads));
  }
  if (const auto* xl = std::get_if<TransformerXl>(&*a.position)) {
    list.linear("mixer.r", "relative positions", q, d_model, false, by_head);
    if (!xl->shared_bias) {
      list.table("mixer.u", "relative positions", {a.n_heads, *a.head_dim}, by_head);
      list.table("mixer.v_bias", "relative positions", {a.n_heads, *a.head_dim}, by_head);
    }
  }
  list.linear("mixer.o", "o", d_model, a.n_heads * *a.v_head_dim, a.bias.o, divided_columns(a.n_heads, *a.n_kv_heads));
}

void add_cross(WeightList& list, const CrossAttention& a, int64_t d_model) {
  const int64_t kv = *a.n_kv_heads * *a.head_dim;
  list.linear("cross.q", "cross q", a.n_heads * *a.head_dim, d_model, a.bias.q);
  list.linear("cross.k", "cross k", kv, *a.d_source, a.bias.k);
  list.linear("cross.v", "cross v", kv, *a.d_source, a.bias.v);
  list.linear("cross.o", "cross o", d_model, a.n_heads * *a.head_dim, a.bias.o);
}

void add(WeightList& list, const Mla& a, int64_t d_model) {
  const int64_t q = a.n_heads * (a.qk_nope + a.qk_rope);
  const Norm latent_norm = RmsNorm{.eps = a.norm_eps};
  if (a.q_lora_rank) {
    list.linear("mixer.q_down", "q", *a.q_lora_rank, d_model, a.bias);
    list.norm("mixer.q_norm", "latent norms", latent_norm, *a.q_lora_rank);
    list.linear("mixer.q_up", "q", q, *a.q_lora_rank, false, divided_rows(a.n_heads));
  } else {
    list.linear("mixer.q", "q", q, d_model, false, divided_rows(a.n_heads));
  }
  list.linear("mixer.kv_down", "kv latent", a.kv_lora_rank + a.qk_rope, d_model, a.bias);
  list.norm("mixer.kv_norm", "latent norms", latent_norm, a.kv_lora_rank);
  list.linear("mixer.kv_up", "kv expansion", a.n_heads * (a.qk_nope + a.v_head_dim), a.kv_lora_rank, false,
              divided_rows(a.n_heads));
  list.linear("mixer.o", "o", d_model, a.n_heads * a.v_head_dim, a.bias, divided_columns(a.n_heads));
}

void add(WeightList& list, const Mamba& m, int64_t d_model) {
  const Division by_channel = divided_rows(*m.d_inner);
  const Division::Section channels{*m.d_inner, *m.d_inner};
  list.linear("mixer.in", "ssm in", 2 * *m.d_inner, d_model, m.bias, divided_sections({channels, channels}));
  list.table("mixer.conv.weight", "ssm conv", {*m.d_inner, m.conv}, by_channel);
  if (m.conv_bias) list.table("mixer.conv.bias", "ssm conv", {*m.d_inner}, by_channel);
  list.linear("mixer.x", "ssm dt B C", *m.dt_rank + 2 * m.state, *m.d_inner, false, divided_columns(*m.d_inner));
  if (m.norm) {
    list.norm("mixer.dt_norm", "ssm norms", *m.norm, *m.dt_rank);
    list.norm("mixer.b_norm", "ssm norms", *m.norm, m.state);
    list.norm("mixer.c_norm", "ssm norms", *m.norm, m.state);
  }
  list.linear("mixer.dt", "ssm dt B C", *m.d_inner, *m.dt_rank, true, by_channel);
  list.table("mixer.a_log", "ssm A D", {*m.d_inner, m.state}, by_channel);
  list.table("mixer.d", "ssm A D", {*m.d_inner}, by_channel);
  list.linear("mixer.out", "ssm out", d_model, *m.d_inner, m.bias, divided_columns(*m.d_inner));
}

void add(WeightList& list, const Mamba2& m, int64_t d_model) {
  const int64_t heads = *m.d_inner / m.head_dim;
  const int64_t joined = *m.d_inner + 2 * m.groups * m.state;
  const Division by_head = divided_rows(heads, m.groups);
  const Division::Section channels{*m.d_inner, heads, m.groups};
  const Division::Section shared{m.groups * m.state, m.groups, m.groups};  // B or C: divided like KV heads
  const Division convolved = divided_sections({channels, shared, shared});
  list.linear("mixer.in", "ssm in", *m.d_inner + joined + heads, d_model, m.bias,
              divided_sections({channels, channels, shared, shared, {heads, heads, m.groups}}));
  list.table("mixer.conv.weight", "ssm conv", {joined, m.conv}, convolved);
  if (m.conv_bias) list.table("mixer.conv.bias", "ssm conv", {joined}, convolved);
  list.table("mixer.dt_bias", "ssm dt A D", {heads}, by_head);
  list.table("mixer.a_log", "ssm dt A D", {heads}, by_head);
  list.table("mixer.d", "ssm dt A D", {heads}, by_head);
  if (m.norm != GatedNorm::none) list.table("mixer.norm.weight", "ssm norm", {*m.d_inner}, by_head);
  list.linear("mixer.out", "ssm out", d_model, *m.d_inner, m.bias, divided_columns(heads, m.groups));
}

void add(WeightList& list, const S4d& m, int64_t d_model) {
  list.table("mixer.log_dt", "ssm A C D dt", {d_model});
  list.table("mixer.a_log", "ssm A C D dt", {d_model, m.state / 2});
  list.table("mixer.a_imag", "ssm A C D dt", {d_model, m.state / 2});
  list.table("mixer.c", "ssm A C D dt", {d_model, m.state / 2, 2});
  list.table("mixer.d", "ssm A C D dt", {d_model});
  list.linear("mixer.out", "ssm out", 2 * d_model, d_model, m.bias);
}

void add(WeightList& list, const ShortConv& m, int64_t d_model) {
  list.linear("mixer.in", "short conv in", checked_product(3, d_model), d_model, m.bias);
  list.table("mixer.conv.weight", "short conv", {d_model, m.conv});
  if (m.bias) list.table("mixer.conv.bias", "short conv", {d_model});
  list.linear("mixer.out", "short conv out", d_model, d_model, m.bias);
}

void add(WeightList& list, const RgLru& m, int64_t d_model) {
  const int64_t block = *m.width / m.blocks;
  list.linear("mixer.y", "lru in", *m.width, d_model, true);
  list.linear("mixer.x", "lru in", *m.width, d_model, true);
  list.table("mixer.conv.weight", "lru conv", {*m.width, m.conv});
  list.table("mixer.conv.bias", "lru conv", {*m.width});
  list.experts(m.blocks, m.blocks);  // a token uses every block
  list.linear("mixer.input_gate", "lru gates", block, block, true);
  list.linear("mixer.recurrence_gate", "lru gates", block, block, true);
  list.experts(0, 0);
  list.table("mixer.decay", "lru decay", {*m.width});
  list.linear("mixer.out", "lru out", d_model, *m.width, true);
}

void add(WeightList& list, const Lightning& m, int64_t d_model) {
  const int64_t width = m.n_heads * *m.head_dim;
  for (const char* part : {"q", "k", "v"}) list.linear(str("mixer.", part), part, width, d_model, false);
  list.linear("mixer.gate", "output gate", width, d_model, false);
  list.norm("mixer.norm", "output norm", RmsNorm{.eps = m.norm_eps}, width);
  list.linear("mixer.o", "o", d_model, width, false);
}

void add(WeightList& list, const Wkv& m, int64_t d_model) {
  for (const char* part : {"k", "v", "r"}) {
    list.table(str("mixer.mix_", part), "token shift", {d_model});
    list.linear(str("mixer.", part), part, *m.width, d_model, false);
  }
  list.table("mixer.decay", "decay", {*m.width});
  list.table("mixer.first", "decay", {*m.width});
  list.linear("mixer.o", "o", d_model, *m.width, false);
}

void add(WeightList& list, const ChannelMix& m, int64_t d_model) {
  list.table("mixer.mix_k", "token shift", {d_model});
  list.table("mixer.mix_r", "token shift", {d_model});
  list.linear("mixer.k", "channel mix k", *m.d_ff, d_model, false);
  list.linear("mixer.r", "channel mix r", d_model, d_model, false);
  list.linear("mixer.v", "channel mix v", d_model, *m.d_ff, false);
}

void add(WeightList& list, const GatedDelta& m, int64_t d_model) {
  const int64_t keys = *m.n_key_heads * m.key_dim;
  const int64_t values = m.n_heads * m.value_dim;
  list.linear("mixer.q", "q", keys, d_model, false);
  list.linear("mixer.k", "k", keys, d_model, false);
  list.linear("mixer.v", "v", values, d_model, false);
  list.linear("mixer.z", "output gate", values, d_model, false);
  list.linear("mixer.b", "delta rule", m.n_heads, d_model, false);
  list.linear("mixer.a", "delta rule", m.n_heads, d_model, false);
  list.table("mixer.conv.weight", "delta conv", {2 * keys + values, m.conv});
  list.table("mixer.dt_bias", "delta rule", {m.n_heads});
  list.table("mixer.a_log", "delta rule", {m.n_heads});
  list.norm("mixer.norm", "output norm", RmsNorm{.eps = m.norm_eps}, m.value_dim);
  list.linear("mixer.o", "o", d_model, values, false);
}

void add(WeightList& list, const AttentionMamba2& m, int64_t d_model) {
  add(list, m.attention, d_model);
  add(list, m.mamba2, d_model);
}

void add(WeightList& /*list*/, const NoMixer& /*m*/, int64_t /*d_model*/) {}

void add(WeightList& list, const PlainFfn& f, int64_t d_model) {
  list.linear("ffn.up", "ffn up (w1)", *f.d_ff, d_model, f.bias, divided_rows(*f.d_ff));
  if (f.xielu) {
    list.table("ffn.xielu.alpha_p", "activation", {1});
    list.table("ffn.xielu.alpha_n", "activation", {1});
  }
  list.linear("ffn.down", "ffn down (w2)", d_model, *f.d_ff, f.bias, divided_columns(*f.d_ff));
}

void add(WeightList& list, const GatedFfn& f, int64_t d_model) {
  list.linear("ffn.gate", "ffn gate (w1)", *f.d_ff, d_model, f.bias, divided_rows(*f.d_ff));
  list.linear("ffn.up", "ffn up (w3)", *f.d_ff, d_model, f.bias, divided_rows(*f.d_ff));
  list.linear("ffn.down", "ffn down (w2)", d_model, *f.d_ff, f.bias, divided_columns(*f.d_ff));
}

void add(WeightList& list, const Moe& f, int64_t d_model) {
  list.linear("ffn.router", "router", f.experts, d_model, f.router_bias);
  if (f.selection_bias) list.table("ffn.selection_bias", "router", {f.experts});
  const bool gated = std::holds_alternative<GatedFfn>(f.expert);
  const auto [d_ff, bias] = std::visit([](const auto& e) { return std::pair(*e.d_ff, e.bias); }, f.expert);
  list.experts(f.experts, f.top_k);
  if (gated) list.linear("ffn.experts.gate", "experts", d_ff, d_model, bias, divided_rows(d_ff));
  list.linear("ffn.experts.up", "experts", d_ff, d_model, bias, divided_rows(d_ff));
  list.linear("ffn.experts.down", "experts", d_model, d_ff, bias, divided_columns(d_ff));
  list.experts(0, 0);
  if (f.shared_experts == 0) return;
  if (f.shared_gate) list.linear("ffn.shared_gate", "shared experts", 1, d_model, false);
  const Division shared_rows = divided_rows(*f.shared_d_ff);
  if (gated) list.linear("ffn.shared.gate", "shared experts", *f.shared_d_ff, d_model, bias, shared_rows);
  list.linear("ffn.shared.up", "shared experts", *f.shared_d_ff, d_model, bias, shared_rows);
  list.linear("ffn.shared.down", "shared experts", d_model, *f.shared_d_ff, bias, divided_columns(*f.shared_d_ff));
}

void add(WeightList& /*list*/, const NoFfn& /*f*/, int64_t /*d_model*/) {}

/// Adds the position tables that several layers share.
void add_shared_position(WeightList& list, const ArchSpec& spec) {
  for (const Block* block : layer_blocks(spec)) {
    const auto* a = attention_of(block->mixer);
    if (a == nullptr) continue;
    if (const auto* t5 = std::get_if<T5Bias>(&*a->position); t5 != nullptr && t5->shared) {
      return list.table("position.weight", "positions", {t5->buckets, a->n_heads},
                        divided_columns(a->n_heads, *a->n_kv_heads));
    }
    if (const auto* xl = std::get_if<TransformerXl>(&*a->position); xl != nullptr && xl->shared_bias) {
      list.table("position.u", "positions", {a->n_heads, *a->head_dim});
      return list.table("position.v", "positions", {a->n_heads, *a->head_dim});
    }
  }
}

/// Adds embedding and positions of one stack.
void add_inputs(WeightList& list, const ArchSpec& stack, bool has_table) {
  const int64_t d_embed = *stack.embedding.d_embed;
  const Embedding& embedding = stack.embedding;
  if (has_table)
    list.table("embedding.weight", "embedding", {stack.vocab_size, d_embed}, divided_rows(stack.vocab_size));
  if (d_embed != stack.d_model) {
    list.linear("embedding.project_in", "embedding projections", stack.d_model, d_embed, false);
  }
  if (embedding.segments) list.table("embedding.segments.weight", "segments", {*embedding.segments, stack.d_model});
  if (embedding.norm) list.norm("embedding.norm", "embedding norm", *embedding.norm, stack.d_model);
  if (const auto* learned = std::get_if<LearnedPosition>(&stack.position)) {
    list.table("position.weight", "positions", {*learned->length + learned->offset, stack.d_model});
  }
  add_shared_position(list, stack);
}

void add_heads(WeightList& list, const ArchSpec& spec) {
  const int64_t d_embed = *spec.embedding.d_embed;
  if (spec.pooling && spec.pooling->dense) list.linear("pooling", "pooling", spec.d_model, spec.d_model, true);
  if (spec.classifier) list.linear("classifier", "classifier", spec.classifier->classes, spec.d_model, true);
  if (spec.head.transform) {
    list.linear("head.transform.dense", "head transform", spec.d_model, spec.d_model, spec.head.transform->bias);
    list.norm("head.transform.norm", "head transform", *spec.head.transform->norm, spec.d_model);
  }
  if (d_embed != spec.d_model) {
    list.linear("head.project_out", "embedding projections", d_embed, spec.d_model, false);
  }
  if (!spec.head.tied) list.linear("head", "head", spec.vocab_size, d_embed, false, divided_rows(spec.vocab_size));
  if (spec.head.bias) list.table("head.bias", "head", {spec.vocab_size}, divided_rows(spec.vocab_size));
}

/// Weights outside the layers, of a stack without a head.
std::vector<Weight> stack_outer_weights(const ArchSpec& stack, bool has_table) {
  WeightList list;
  add_inputs(list, stack, has_table);
  if (*stack.final_norm) list.norm("final_norm", "final norm", stack.norm, stack.d_model);
  return list.take();
}

}  // namespace

std::vector<Weight> block_weights(const ArchSpec& spec, const Block& block) {
  return block_weights(spec.d_model, block);
}

std::vector<Weight> block_weights(int64_t d_model, const Block& block) {
  WeightList list;
  for (const NormSlot slot : norm_slots(block)) {
    list.norm(std::string(names_of(slot)[static_cast<size_t>(slot)]), "norms", *block.norm, d_model);
  }
  std::visit([&](const auto& mixer) { add(list, mixer, d_model); }, block.mixer);
  if (block.cross) add_cross(list, *block.cross, d_model);
  std::visit([&](const auto& ffn) { add(list, ffn, d_model); }, block.ffn);
  return list.take();
}

std::vector<Weight> outer_weights(const ArchSpec& spec) {
  WeightList list;
  add_inputs(list, spec, true);
  if (*spec.final_norm) list.norm("final_norm", "final norm", spec.norm, spec.d_model);
  add_heads(list, spec);
  return list.take();
}

std::vector<Weight> encoder_outer_weights(const ArchSpec& spec) {
  return stack_outer_weights(encoder_stack(spec), !spec.encoder->shared_embedding);
}

std::vector<Weight> neighbour_outer_weights(const ArchSpec& spec) {
  return stack_outer_weights(neighbour_stack(spec), !*spec.retrieval->shared_embedding);
}

}  // namespace lamina::arch
