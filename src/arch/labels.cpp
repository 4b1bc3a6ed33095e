#include "lamina/arch/labels.h"

#include <cstdio>

#include "lamina/base/error.h"

namespace lamina::arch {
namespace {

using Lines = std::vector<std::string>;

template <class E>
std::string name(E value) {
  return std::string(names_of(value)[static_cast<size_t>(value)]);
}

std::string short_double(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string rope_label(const Rope& rope) {
  std::string text = str("rope, base ", short_double(rope.theta));
  if (rope.rotary_dim && rope.fraction != 1.0) text += str(", ", *rope.rotary_dim, " dims");
  if (rope.pairing == Pairing::interleaved) text += ", interleaved";
  if (!std::holds_alternative<NoScaling>(rope.scaling)) text += str(", ", kind_of(rope.scaling));
  return text;
}

std::string layer_position_label(const LayerPosition& position) {
  if (const auto* rope = std::get_if<Rope>(&position)) return rope_label(*rope);
  return std::holds_alternative<NoPosition>(position) ? "no position" : std::string(kind_of(position));
}

std::string pattern_label(const Pattern& pattern) {
  if (const auto* window = std::get_if<WindowPattern>(&pattern)) return str("window of ", window->size);
  if (const auto* chunks = std::get_if<ChunkPattern>(&pattern)) return str("chunks of ", chunks->size);
  const auto* longformer = std::get_if<LongformerPattern>(&pattern);
  if (longformer != nullptr && longformer->global_projections) {
    return str("window of ", longformer->window, ", ", longformer->global_tokens, " global with own q, k, v");
  }
  return std::string(kind_of(pattern));
}

bool norms_after_rope(const QkNorm& norm) {
  const auto* per_head = std::get_if<PerHeadQkNorm>(&norm);
  const auto* whole = std::get_if<WholeQkNorm>(&norm);
  return per_head != nullptr ? per_head->after_rope : whole != nullptr && whole->after_rope;
}

void add_extras(const Attention& a, Lines& lines) {
  if (!std::holds_alternative<NoQkNorm>(a.qk_norm)) {
    lines.push_back(str("QK-norm ", kind_of(a.qk_norm), norms_after_rope(a.qk_norm) ? ", after rope" : ""));
  }
  if (a.temperature) lines.push_back(str("queries grow every ", a.temperature->interval, " positions"));
  if (a.soft_cap) lines.push_back(str("scores capped at ", short_double(*a.soft_cap)));
  if (a.clip_qkv) lines.push_back(str("q, k, v clipped to ", short_double(*a.clip_qkv)));
  if (a.sinks) lines.emplace_back("sinks");
  if (a.gate) lines.emplace_back("sigmoid output gate");
}

std::string biases(const AttentionBias& bias) {
  return str("bias on", bias.q ? " q" : "", bias.k ? " k" : "", bias.v ? " v" : "", bias.o ? " o" : "");
}

bool any(const AttentionBias& bias) { return bias.q || bias.k || bias.v || bias.o; }

Lines labels(const Attention& a) {
  Lines lines{*a.causal ? "attention" : "attention, not causal",
              str(a.n_heads, " heads, ", *a.n_kv_heads, " for k and v, of ", *a.head_dim),
              layer_position_label(*a.position)};
  if (!std::holds_alternative<FullPattern>(a.pattern)) lines.push_back(pattern_label(a.pattern));
  add_extras(a, lines);
  if (any(a.bias)) lines.push_back(biases(a.bias));
  return lines;
}

Lines labels(const Mla& a) {
  Lines lines{"latent attention", str(a.n_heads, " heads of ", a.qk_nope, " + ", a.qk_rope, " rotated"),
              str("kv latent ", a.kv_lora_rank, a.q_lora_rank ? str(", q latent ", *a.q_lora_rank) : ""),
              layer_position_label(*a.position)};
  if (!std::holds_alternative<FullPattern>(a.pattern)) lines.push_back(pattern_label(a.pattern));
  return lines;
}

Lines labels(const Mamba& m) {
  Lines lines{"mamba", str(*m.d_inner, " channels, state ", m.state), str("conv ", m.conv, ", dt rank ", *m.dt_rank)};
  if (m.norm) lines.emplace_back("dt, B and C normed");
  return lines;
}
Lines labels(const Mamba2& m) {
  return {"mamba-2", str(*m.d_inner / m.head_dim, " heads of ", m.head_dim, ", state ", m.state), str("conv ", m.conv)};
}
Lines labels(const ShortConv& m) { return {"gated short convolution", str(m.conv, " taps")}; }
Lines labels(const RgLru& m) {
  return {"real-gated LRU", str(*m.width, " channels, ", m.blocks, " gate blocks"), str("conv ", m.conv)};
}
Lines labels(const AttentionMamba2& m) {
  Lines lines = labels(m.attention);
  const Lines mamba2 = labels(m.mamba2);
  lines[0] += " and " + mamba2[0];
  lines.insert(lines.end(), mamba2.begin() + 1, mamba2.end());
  return lines;
}
Lines labels(const Lightning& m) {
  return {"lightning attention", str(m.n_heads, " heads of ", *m.head_dim), "sigmoid gate"};
}
Lines labels(const Wkv& m) { return {"wkv", "token shift", str(*m.width, " channels, sigmoid gate")}; }
Lines labels(const ChannelMix& m) { return {"channel mix", "token shift", str("relu2, d_ff ", *m.d_ff)}; }
Lines labels(const GatedDelta& m) {
  return {"gated delta rule", str(*m.n_key_heads, " key heads of ", m.key_dim),
          str(m.n_heads, " value heads of ", m.value_dim), str("conv ", m.conv)};
}
Lines labels(const S4d& m) { return {"diagonal S4", str("state ", m.state)}; }
Lines labels(const NoMixer& /*m*/) { return {"nothing"}; }

Lines labels(const PlainFfn& f) {
  return {"feed-forward", str(f.xielu ? "xielu" : name(f.activation), ", d_ff ", *f.d_ff, f.bias ? ", bias" : "")};
}
Lines labels(const GatedFfn& f) {
  Lines lines{"gated feed-forward", str(name(f.gate), ", d_ff ", *f.d_ff, f.bias ? ", bias" : "")};
  if (f.limit) lines.push_back(str("clamped at ", short_double(*f.limit)));
  return lines;
}
Lines labels(const Moe& f) {
  Lines lines{"experts", str(f.top_k, " of ", f.experts, ", ", name(f.score), " scores")};
  if (f.groups > 1) lines.push_back(str("from ", f.top_groups, " of ", f.groups, " groups"));
  const Lines expert = std::visit([](const auto& e) { return labels(e); }, f.expert);
  lines.push_back("each " + expert[1]);
  if (f.weigh_inputs) lines.emplace_back("weights on inputs");
  if (f.shared_experts > 0) {
    lines.push_back(str(f.shared_experts, " shared, d_ff ", *f.shared_d_ff, f.shared_gate ? ", gated" : ""));
  }
  return lines;
}
Lines labels(const NoFfn& /*f*/) { return {"nothing"}; }

}  // namespace

Lines mixer_labels(const Mixer& mixer) {
  return std::visit([](const auto& option) { return labels(option); }, mixer);
}

Lines cross_labels(const CrossAttention& a, const std::string& title) {
  Lines lines{title, str(a.n_heads, " heads, ", *a.n_kv_heads, " for k and v, of ", *a.head_dim)};
  if (any(a.bias)) lines.push_back(biases(a.bias));
  return lines;
}

Lines ffn_labels(const Ffn& ffn) {
  return std::visit([](const auto& option) { return labels(option); }, ffn);
}

std::string norm_label(const Norm& norm) {
  const double offset = std::visit(
      [](const auto& option) {
        if constexpr (requires { option.offset; }) return option.offset;
        return 0.0;
      },
      norm);
  const auto* layer = std::get_if<LayerNorm>(&norm);
  const bool is_layer = layer != nullptr || std::holds_alternative<LayerNormNoParams>(norm);
  std::string text = is_layer ? "layer norm" : "RMS norm";
  if (layer != nullptr && !layer->bias) text += ", no bias";
  if (std::holds_alternative<LayerNormNoParams>(norm) || std::holds_alternative<RmsNormNoParams>(norm)) {
    text += ", no parameters";
  }
  if (offset != 0.0) text += str(", scale + ", short_double(offset));
  return text;
}

std::string position_label(const Position& position) {
  if (const auto* learned = std::get_if<LearnedPosition>(&position))
    return str("learned positions, ", *learned->length);
  if (const auto* rope = std::get_if<Rope>(&position)) return rope_label(*rope);
  return std::string(kind_of(position));
}

}  // namespace lamina::arch
