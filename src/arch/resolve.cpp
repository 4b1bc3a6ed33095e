#include "lamina/arch/resolve.h"

#include <algorithm>
#include <cmath>

#include "lamina/arch/layers.h"
#include "lamina/arch/rules.h"

namespace lamina::arch {
namespace {

/// Upper bound of derived widths, to avoid overflow; the rule `range` reports larger ones.
constexpr auto kLargest = static_cast<int64_t>(kSize.max);

template <class T>
void fill(std::optional<T>& option, std::optional<T> value) {
  if (!option) option = std::move(value);
}

double yarn_magnitude(double factor, double s) { return factor <= 1.0 ? 1.0 : 0.1 * s * std::log(factor) + 1.0; }

void fill_scaling(YarnScaling& yarn, const ArchSpec& /*spec*/) {
  if (!(yarn.factor > 0.0)) return;
  const bool both = yarn.mscale.value_or(0.0) != 0.0 && yarn.mscale_all_dim.value_or(0.0) != 0.0;
  const double factor =
      both ? yarn_magnitude(yarn.factor, *yarn.mscale) / yarn_magnitude(yarn.factor, *yarn.mscale_all_dim)
           : yarn_magnitude(yarn.factor, 1.0);
  fill(yarn.attention_factor, std::optional(factor));
}

void fill_scaling(LongRopeScaling& scaling, const ArchSpec& spec) {
  if (scaling.original_length.value_or(0) < 2) return;
  const auto original = static_cast<double>(*scaling.original_length);
  const double factor = std::max(1.0, static_cast<double>(spec.context) / original);
  fill(scaling.attention_factor, std::optional(std::sqrt(1.0 + std::log(factor) / std::log(original))));
}

template <class T>
void fill_scaling(T& /*scaling*/, const ArchSpec& /*spec*/) {}

void fill_rope(Rope& rope, const ArchSpec& spec, std::optional<int64_t> head_dim) {
  if (head_dim && *head_dim <= kLargest && rope.fraction > 0.0 && rope.fraction <= 1.0) {
    fill(rope.rotary_dim, std::optional(static_cast<int64_t>(static_cast<double>(*head_dim) * rope.fraction)));
  }
  std::visit([&spec](auto& scaling) { fill_scaling(scaling, spec); }, rope.scaling);
}

/// The part of the model's position that layers handle.
LayerPosition layer_position(const Position& position) {
  return std::visit(
      []<class T>(const T& option) -> LayerPosition {
        if constexpr (std::is_same_v<T, LearnedPosition> || std::is_same_v<T, SinusoidalPosition>) {
          return NoPosition{};
        } else {
          return option;
        }
      },
      position);
}

void fill_position(std::optional<LayerPosition>& position, const ArchSpec& spec, std::optional<int64_t> head_dim) {
  fill(position, std::optional(layer_position(spec.position)));
  if (auto* rope = std::get_if<Rope>(&*position)) fill_rope(*rope, spec, head_dim);
  if (auto* relative = std::get_if<TransformerXl>(&*position)) fill(relative->memory, std::optional(spec.context));
}

void fill_mixer(Attention& a, const ArchSpec& spec, const Norm& norm) {
  fill(a.causal, std::optional(spec.causal));
  fill(a.n_kv_heads, std::optional(a.n_heads));
  if (!a.head_dim && a.n_heads > 0 && spec.d_model % a.n_heads == 0) a.head_dim = spec.d_model / a.n_heads;
  fill(a.v_head_dim, a.head_dim);
  if (a.head_dim && *a.head_dim > 0) fill(a.scale, std::optional(1.0 / std::sqrt(static_cast<double>(*a.head_dim))));
  if (auto* whole = std::get_if<WholeQkNorm>(&a.qk_norm)) fill(whole->norm, std::optional(norm));
  if (auto* per_head = std::get_if<PerHeadQkNorm>(&a.qk_norm)) fill(per_head->norm, std::optional(norm));
  fill_position(a.position, spec, a.head_dim);
}

void fill_mixer(Mla& a, const ArchSpec& spec, const Norm& /*norm*/) {
  fill_position(a.position, spec, a.qk_rope);
  const auto width = static_cast<double>(a.qk_nope) + static_cast<double>(a.qk_rope);
  if (a.scale || !(width > 0.0)) return;
  double magnitude = 1.0;
  const auto* rope = std::get_if<Rope>(&*a.position);
  const auto* yarn = rope == nullptr ? nullptr : std::get_if<YarnScaling>(&rope->scaling);
  if (yarn != nullptr && yarn->mscale_all_dim && yarn->factor > 0.0) {
    magnitude = yarn_magnitude(yarn->factor, *yarn->mscale_all_dim);
  }
  a.scale = magnitude * magnitude / std::sqrt(width);
}

std::optional<int64_t> expanded(double expand, int64_t d_model) {
  const double inner = expand * static_cast<double>(d_model);
  if (!(inner >= 1.0 && inner <= static_cast<double>(kLargest))) return std::nullopt;
  return static_cast<int64_t>(inner);
}

void fill_mixer(Mamba& m, const ArchSpec& spec, const Norm& /*norm*/) {
  fill(m.d_inner, expanded(m.expand, spec.d_model));
  if (spec.d_model > 0 && spec.d_model <= kLargest) fill(m.dt_rank, std::optional((spec.d_model + 15) / 16));
}

void fill_mixer(Mamba2& m, const ArchSpec& spec, const Norm& /*norm*/) {
  fill(m.d_inner, expanded(m.expand, spec.d_model));
}
void fill_mixer(S4d& /*m*/, const ArchSpec& /*spec*/, const Norm& /*norm*/) {}
void fill_mixer(NoMixer& /*m*/, const ArchSpec& /*spec*/, const Norm& /*norm*/) {}

void fill_ffn(PlainFfn& f, int64_t d_model) { fill(f.d_ff, std::optional(4 * d_model)); }

void fill_ffn(GatedFfn& f, int64_t d_model) {
  if (f.multiple_of <= 0 || f.multiple_of > kLargest) return;
  const int64_t exact = (8 * d_model + 2) / 3;  // rounded up
  fill(f.d_ff, std::optional((exact + f.multiple_of - 1) / f.multiple_of * f.multiple_of));
}

void fill_ffn(Moe& f, int64_t d_model) {
  std::visit([d_model](auto& expert) { fill_ffn(expert, d_model); }, f.expert);
  const std::optional<int64_t> d_ff = std::visit([](const auto& expert) { return expert.d_ff; }, f.expert);
  const bool small = d_ff && *d_ff > 0 && *d_ff <= kLargest && f.shared_experts > 0 && f.shared_experts <= kLargest;
  if (small) fill(f.shared_d_ff, std::optional(f.shared_experts * *d_ff));
}
void fill_ffn(NoFfn& /*f*/, int64_t /*d_model*/) {}

void fill_cross(CrossAttention& a, int64_t d_model) {
  fill(a.n_kv_heads, std::optional(a.n_heads));
  if (!a.head_dim && a.n_heads > 0 && d_model % a.n_heads == 0) a.head_dim = d_model / a.n_heads;
  if (a.head_dim && *a.head_dim > 0) fill(a.scale, std::optional(1.0 / std::sqrt(static_cast<double>(*a.head_dim))));
}

void fill_block(Block& block, const ArchSpec& spec) {
  fill(block.norm, std::optional(spec.norm));
  if (block.cross) fill_cross(*block.cross, spec.d_model);
  std::visit([&](auto& mixer) { fill_mixer(mixer, spec, *block.norm); }, block.mixer);
  const int64_t d_model = std::clamp<int64_t>(spec.d_model, 0, kLargest);
  std::visit([d_model](auto& ffn) { fill_ffn(ffn, d_model); }, block.ffn);
}

void fill_scale(Scale& scale, int64_t d_model) {
  const double root = std::sqrt(static_cast<double>(std::max<int64_t>(d_model, 1)));
  if (std::holds_alternative<NoScale>(scale)) scale = ConstantScale{1.0};
  if (std::holds_alternative<SqrtWidthScale>(scale)) scale = ConstantScale{root};
  if (std::holds_alternative<InverseSqrtWidthScale>(scale)) scale = ConstantScale{1.0 / root};
}

void fill_learned(Position& position, int64_t context) {
  if (auto* learned = std::get_if<LearnedPosition>(&position)) fill(learned->length, std::optional(context));
}

void fill_layers(std::vector<LayerGroup>& layers, std::optional<bool>& final_norm, const ArchSpec& spec) {
  const Block* last = nullptr;
  for (LayerGroup& group : layers) {
    for (Block& block : group.pattern) {
      fill_block(block, spec);
      last = &block;
    }
  }
  fill(final_norm, std::optional(last == nullptr || last->placement != Placement::post));
}

void fill_encoder(ArchSpec& spec) {
  Encoder& encoder = *spec.encoder;
  if (!encoder.position) {
    encoder.position = spec.position;
    if (auto* t5 = std::get_if<T5Bias>(&*encoder.position)) t5->bidirectional = true;
  }
  fill_learned(*encoder.position, spec.context);
  const ArchSpec stack = encoder_stack(spec);
  fill_layers(encoder.layers, encoder.final_norm, stack);
}

}  // namespace

ArchSpec fill_defaults(ArchSpec spec) {
  fill(spec.embedding.d_embed, std::optional(spec.d_model));
  fill_scale(spec.embedding.scale, spec.d_model);
  fill_scale(spec.head.scale, spec.d_model);
  fill_learned(spec.position, spec.context);
  fill_layers(spec.layers, spec.final_norm, spec);
  if (spec.encoder) fill_encoder(spec);
  if (spec.head.transform) fill(spec.head.transform->norm, std::optional(spec.norm));
  return spec;
}

ArchSpec resolve(const ArchSpec& spec, const std::string& name) {
  ArchSpec filled = fill_defaults(spec);
  std::vector<Problem> problems = violations(filled);
  if (!problems.empty()) throw SpecError(name, std::move(problems));
  return filled;
}

}  // namespace lamina::arch
