#include "lamina/arch/resolve.h"

#include <algorithm>
#include <cmath>

#include "lamina/arch/layers.h"
#include "lamina/arch/rules.h"

namespace lamina::arch {
namespace {

/// Upper bound of derived widths, which prevents overflow. The rule `range` reports larger ones.
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

/// The part of the model's position that layers apply themselves.
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
void fill_mixer(AttentionMamba2& m, const ArchSpec& spec, const Norm& norm) {
  fill_mixer(m.attention, spec, norm);
  fill_mixer(m.mamba2, spec, norm);
}
void fill_mixer(RgLru& m, const ArchSpec& spec, const Norm& /*norm*/) {
  if (spec.d_model > 0) fill(m.width, std::optional(spec.d_model));
}
void fill_mixer(Lightning& m, const ArchSpec& spec, const Norm& /*norm*/) {
  if (!m.head_dim && m.n_heads > 0 && spec.d_model % m.n_heads == 0) m.head_dim = spec.d_model / m.n_heads;
}
void fill_mixer(Wkv& m, const ArchSpec& spec, const Norm& /*norm*/) {
  if (spec.d_model > 0) fill(m.width, std::optional(spec.d_model));
}
void fill_mixer(ChannelMix& m, const ArchSpec& spec, const Norm& /*norm*/) {
  if (spec.d_model > 0 && spec.d_model <= kLargest) fill(m.d_ff, std::optional(4 * spec.d_model));
}
void fill_mixer(GatedDelta& m, const ArchSpec& /*spec*/, const Norm& /*norm*/) {
  fill(m.n_key_heads, std::optional(m.n_heads));
}
void fill_mixer(ShortConv& /*m*/, const ArchSpec& /*spec*/, const Norm& /*norm*/) {}
void fill_mixer(S4d& /*m*/, const ArchSpec& /*spec*/, const Norm& /*norm*/) {}
void fill_mixer(NoMixer& /*m*/, const ArchSpec& /*spec*/, const Norm& /*norm*/) {}

void fill_ffn(PlainFfn& f, int64_t d_model) { fill(f.d_ff, std::optional(4 * d_model)); }

void fill_ffn(GatedFfn& f, int64_t d_model) {
  if (f.multiple_of <= 0 || f.multiple_of > kLargest) return;
  const int64_t times = 8 * d_model / (3 * f.multiple_of);  // rounded down
  const bool more = f.rounding == Rounding::up && 3 * f.multiple_of * times < 8 * d_model;
  fill(f.d_ff, std::optional(std::max<int64_t>(times + (more ? 1 : 0), 1) * f.multiple_of));
}

void fill_ffn(Moe& f, int64_t d_model) {
  std::visit([d_model](auto& expert) { fill_ffn(expert, d_model); }, f.expert);
  const std::optional<int64_t> d_ff = std::visit([](const auto& expert) { return expert.d_ff; }, f.expert);
  const bool small = d_ff && *d_ff > 0 && *d_ff <= kLargest && f.shared_experts > 0 && f.shared_experts <= kLargest;
  if (small) fill(f.shared_d_ff, std::optional(f.shared_experts * *d_ff));
}
void fill_ffn(NoFfn& /*f*/, int64_t /*d_model*/) {}

/// The hidden states that a stack's cross-attention reads.
struct CrossSource {
  int64_t width = 0;
  bool chunked = false;  ///< cross-attention between chunks and neighbours
};

void fill_cross(CrossAttention& a, int64_t d_model, const ArchSpec& spec, const CrossSource& source) {
  fill(a.d_source, std::optional(source.width));
  fill(a.n_kv_heads, std::optional(a.n_heads));
  if (!a.head_dim && a.n_heads > 0 && d_model % a.n_heads == 0) a.head_dim = d_model / a.n_heads;
  if (a.head_dim && *a.head_dim > 0) fill(a.scale, std::optional(1.0 / std::sqrt(static_cast<double>(*a.head_dim))));
  fill(a.position, std::optional(source.chunked ? LayerPosition(Rope{}) : LayerPosition(NoPosition{})));
  if (auto* rope = std::get_if<Rope>(&*a.position)) fill_rope(*rope, spec, a.head_dim);
}

void fill_block(Block& block, const ArchSpec& spec, const CrossSource& source) {
  fill(block.norm, std::optional(spec.norm));
  if (block.cross) fill_cross(*block.cross, spec.d_model, spec, source);
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

void fill_layers(std::vector<LayerGroup>& layers, std::optional<bool>& final_norm, const ArchSpec& spec,
                 const CrossSource& source) {
  const Block* last = nullptr;
  for (LayerGroup& group : layers) {
    for (Block& block : group.pattern) {
      fill_block(block, spec, source);
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
  fill_layers(encoder.layers, encoder.final_norm, stack, {spec.d_model});
}

int64_t heads_of(const Block& block) {
  if (const auto* a = std::get_if<Attention>(&block.mixer)) return a->n_heads;
  const auto* mla = std::get_if<Mla>(&block.mixer);
  return mla == nullptr ? 0 : mla->n_heads;
}

/// Adds cross-attention to the blocks of the layers that retrieval.at names.
void expand_cross_layers(ArchSpec& spec) {
  constexpr int64_t kMostLayers = 10000;
  const CrossLayers at = *spec.retrieval->at;
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (!written.in_encoder && written.times < 1) return;  // a rule reports it
  }
  if (at.first < 1 || at.every < 1 || layer_count({.layers = spec.layers}) > kMostLayers) return;  // a rule reports it
  LayerGroup group;
  int64_t number = 0;
  for (const Block* block : layer_blocks(spec)) {
    Block layer = *block;
    layer.repeat = 1;
    ++number;
    if (number >= at.first && (number - at.first) % at.every == 0 && !layer.cross) {
      layer.cross = at.cross;
      if (layer.cross->n_heads == 0) layer.cross->n_heads = heads_of(layer);
    }
    const bool repeats = !group.pattern.empty() && [&] {
      Block last = group.pattern.back();
      last.repeat = 1;
      return last == layer;
    }();
    if (repeats) {
      ++group.pattern.back().repeat;
    } else {
      group.pattern.push_back(std::move(layer));
    }
  }
  if (number < at.first) return;  // a rule reports it
  spec.layers = {std::move(group)};
  spec.retrieval->at.reset();
}

/// Two blocks with the decoder's heads and feed-forward. The first one also attends to the chunk.
std::vector<LayerGroup> default_neighbour_layers(const ArchSpec& spec) {
  Block block;
  Attention attention;
  bool has_own_ffn = false;
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (attention.n_heads == 0) attention.n_heads = heads_of(*written.block);
    if (attention.n_heads == 0 && written.block->cross) attention.n_heads = written.block->cross->n_heads;
    const bool dense =
        std::holds_alternative<PlainFfn>(written.block->ffn) || std::holds_alternative<GatedFfn>(written.block->ffn);
    if (has_own_ffn || !dense) continue;
    has_own_ffn = true;
    block.ffn = written.block->ffn;
  }
  if (spec.retrieval->d_model != spec.d_model) {
    if (auto* plain = std::get_if<PlainFfn>(&block.ffn)) plain->d_ff.reset();
    if (auto* gated = std::get_if<GatedFfn>(&block.ffn)) gated->d_ff.reset();
  }
  if (!has_own_ffn) block.ffn = GatedFfn{};
  block.mixer = attention;
  Block conditioned = block;
  conditioned.cross = CrossAttention{.n_heads = attention.n_heads};
  return {{1, {conditioned, block}}};
}

void fill_retrieval(ArchSpec& spec) {
  Retrieval& retrieval = *spec.retrieval;
  fill(retrieval.d_model, std::optional(spec.d_model));
  fill(retrieval.shared_embedding, std::optional(retrieval.d_model == spec.d_model));
  if (!retrieval.position) {
    retrieval.position = spec.position;
    if (auto* t5 = std::get_if<T5Bias>(&*retrieval.position)) t5->bidirectional = true;
    if (auto* learned = std::get_if<LearnedPosition>(&*retrieval.position)) learned->length.reset();
    if (auto* alibi = std::get_if<Alibi>(&*retrieval.position)) alibi->rounding = BiasRounding::f32;
    if (std::holds_alternative<TransformerXl>(*retrieval.position)) retrieval.position = Rope{};
  }
  fill_learned(*retrieval.position, retrieval.length);
  if (retrieval.layers.empty()) retrieval.layers = default_neighbour_layers(spec);
  const ArchSpec stack = neighbour_stack(spec);
  fill_layers(retrieval.layers, retrieval.final_norm, stack, {spec.d_model, true});
}

}  // namespace

ArchSpec fill_defaults(ArchSpec spec) {
  fill(spec.embedding.d_embed, std::optional(spec.d_model));
  fill_scale(spec.embedding.scale, spec.d_model);
  fill_scale(spec.head.scale, spec.d_model);
  fill_learned(spec.position, spec.context);
  if (spec.retrieval && spec.retrieval->at) expand_cross_layers(spec);
  const bool retrieves = spec.retrieval.has_value();
  const int64_t source_width = retrieves ? spec.retrieval->d_model.value_or(spec.d_model) : spec.d_model;
  fill_layers(spec.layers, spec.final_norm, spec, {source_width, retrieves});
  if (spec.encoder) fill_encoder(spec);
  if (spec.retrieval) fill_retrieval(spec);
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
