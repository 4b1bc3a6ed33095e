#include "lamina/io/hf/draft.h"

#include <algorithm>
#include <cmath>

#include "lamina/arch/layers.h"

namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

/// Maximum length of a repeated pattern.
constexpr size_t kLongestPattern = 64;

/// Merges equal neighboring blocks into one block with a repeat count.
std::vector<Block> run_lengths(const std::vector<Block>& blocks) {
  std::vector<Block> runs;
  for (Block block : blocks) {
    block.repeat = runs.empty() ? 1 : runs.back().repeat;
    if (!runs.empty() && runs.back() == block) {
      ++runs.back().repeat;
    } else {
      block.repeat = 1;
      runs.push_back(std::move(block));
    }
  }
  return runs;
}

/// Number of consecutive repetitions of runs[begin, begin + period).
size_t repetitions(const std::vector<Block>& runs, size_t begin, size_t period) {
  size_t matching = 0;
  while (begin + period + matching < runs.size() && runs[begin + matching] == runs[begin + period + matching]) {
    ++matching;
  }
  return 1 + matching / period;
}

/// Groups layers as repeat × pattern. Greedy: at each position it takes the pattern that covers the most layers, and
/// among equals the shortest.
std::vector<LayerGroup> grouped(const std::vector<Block>& blocks) {
  const std::vector<Block> runs = run_lengths(blocks);
  std::vector<LayerGroup> groups;
  for (size_t begin = 0; begin < runs.size();) {
    size_t period = 1;
    size_t times = 1;
    for (size_t p = 1; p <= std::min(kLongestPattern, (runs.size() - begin) / 2); ++p) {
      const size_t found = repetitions(runs, begin, p);
      if (found > 1 && found * p > times * period) {
        period = p;
        times = found;
      }
    }
    LayerGroup group;
    group.repeat = static_cast<int64_t>(times);
    group.pattern.assign(runs.begin() + static_cast<std::ptrdiff_t>(begin),
                         runs.begin() + static_cast<std::ptrdiff_t>(begin + period));
    if (period == 1) std::swap(group.repeat, group.pattern[0].repeat);
    groups.push_back(std::move(group));
    begin += period * times;
  }
  return groups;
}

bool at(const std::vector<bool>& list, int64_t layer) {
  return static_cast<size_t>(layer) < list.size() && list[static_cast<size_t>(layer)];
}

Ffn dense_of(const Draft& draft) { return draft.dense_plain ? Ffn(*draft.dense_plain) : Ffn(draft.dense_ffn); }

Block layer_of(const Draft& draft, int64_t layer) {
  Block block = draft.block;
  if (at(draft.dense, layer)) block.ffn = dense_of(draft);
  if (at(draft.other, layer) && draft.other_mixer) block.mixer = *draft.other_mixer;
  if (draft.first_unnormed && layer == 0) block.mixer_norm = false;
  Attention* a = attention_of(block.mixer);
  if (a == nullptr) return block;
  const bool sliding = at(draft.sliding, layer);
  if (sliding && draft.window) a->pattern = WindowPattern{*draft.window};
  if (sliding && draft.chunk) a->pattern = ChunkPattern{*draft.chunk};
  if (sliding && draft.local) a->position = *draft.local;
  const bool unrotated = at(draft.unrotated, layer);
  if (unrotated) a->position = NoPosition{};
  if (unrotated && draft.unrotated_temperature) a->temperature = draft.unrotated_temperature;
  if (!unrotated && draft.rotated_norm) a->qk_norm = *draft.rotated_norm;
  if (draft.scale_falls_by_layer && layer > 0) {
    const auto width = static_cast<double>(a->head_dim.value_or(a->n_heads > 0 ? draft.spec.d_model / a->n_heads : 1));
    a->scale = a->scale.value_or(1.0 / std::sqrt(width)) / static_cast<double>(layer + 1);
  }
  return block;
}

/// Pointer to the RoPE settings of a block's attention, or null. Works for const and non-const blocks.
template <class B>
auto rope_of(B& block) {
  auto* a = attention_of(block.mixer);
  auto* mla = std::get_if<Mla>(&block.mixer);
  auto* position = a != nullptr ? &a->position : mla != nullptr ? &mla->position : nullptr;
  return position == nullptr || !*position ? nullptr : std::get_if<Rope>(&**position);
}

/// Sets the rotated fraction of a head so that floor(fraction · head_dim) equals rotary_dim.
void write_fraction(std::optional<Rope>& rope, const Block& block) {
  const Attention* a = attention_of(block.mixer);
  if (!rope || a == nullptr || !rope->rotary_dim || !a->head_dim) return;
  const auto width = static_cast<double>(*a->head_dim);
  rope->fraction = static_cast<double>(*rope->rotary_dim) / width;
  if (static_cast<int64_t>(width * rope->fraction) < *rope->rotary_dim) {
    rope->fraction = std::nextafter(rope->fraction, 2.0);
  }
}

bool falls_by_layer(const std::vector<const Block*>& blocks) {
  if (blocks.size() < 2) return false;
  const auto* first = attention_of(blocks[0]->mixer);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto* a = attention_of(blocks[i]->mixer);
    if (a == nullptr || !a->scale || *a->scale != *first->scale / static_cast<double>(i + 1)) return false;
  }
  return true;
}

void note_layer(Draft& draft, size_t i, const Block& block) {
  if (const auto* moe = std::get_if<Moe>(&block.ffn)) draft.block.ffn = *moe;
  const auto* gated = std::get_if<GatedFfn>(&block.ffn);
  draft.dense[i] = gated != nullptr;
  if (gated != nullptr) draft.dense_ffn = *gated;
  const auto* plain = std::get_if<PlainFfn>(&block.ffn);
  if (plain != nullptr && draft.has_experts) {
    draft.dense[i] = true;
    draft.dense_plain = *plain;
  }
  const Rope* rope = rope_of(block);
  const Attention* a = attention_of(block.mixer);
  const auto* window = a == nullptr ? nullptr : std::get_if<WindowPattern>(&a->pattern);
  const auto* chunks = a == nullptr ? nullptr : std::get_if<ChunkPattern>(&a->pattern);
  if (chunks != nullptr) draft.chunk = chunks->size;
  draft.sliding[i] = window != nullptr || chunks != nullptr;
  draft.unrotated[i] = a != nullptr && std::holds_alternative<NoPosition>(*a->position);
  if (window != nullptr && !draft.window) draft.window = window->size;
  if (a != nullptr && draft.unrotated[i]) draft.unrotated_temperature = a->temperature;
  if (a != nullptr && !draft.unrotated[i]) draft.rotated_norm = a->qk_norm;
  const auto* alibi = a == nullptr ? nullptr : std::get_if<Alibi>(&*a->position);
  if (alibi != nullptr) draft.spec.position = *alibi;
  const auto* t5 = a == nullptr ? nullptr : std::get_if<T5Bias>(&*a->position);
  if (t5 != nullptr) draft.spec.position = *t5;
  if (rope == nullptr) return;
  std::optional<Rope>& known = window != nullptr ? draft.local : draft.rope;
  if (!known) known = *rope;
}

bool attends(const Block* block) {
  return attention_of(block->mixer) != nullptr || std::holds_alternative<Mla>(block->mixer);
}

/// Splits the layers by mixer. The draft's block gets the mixer of the first attention layer; layers without attention
/// are `other`. If no layer has attention, `other` are the layers whose mixer differs in kind from the first layer's.
void note_mixers(Draft& draft, const std::vector<const Block*>& blocks) {
  const auto differs = [&](const Block* block) { return block->mixer.index() != blocks.front()->mixer.index(); };
  const bool by_kind =
      std::none_of(blocks.begin(), blocks.end(), attends) && std::any_of(blocks.begin(), blocks.end(), differs);
  for (const Block* block : blocks) {
    draft.other.push_back(by_kind ? differs(block) : !attends(block));
    if (draft.other.back() && !draft.other_mixer) draft.other_mixer = block->mixer;
  }
  const auto first = std::find_if(blocks.begin(), blocks.end(), attends);
  if (first != blocks.end()) draft.block.mixer = (*first)->mixer;
}

void take_encoder_apart(const std::vector<LayerGroup>& layers, Draft& draft) {
  draft.spec.encoder->layers.clear();
  const std::vector<const Block*> blocks = layer_blocks(layers);
  draft.n_encoder_layers = static_cast<int64_t>(blocks.size());
  draft.encoder_block = *blocks.front();
  for (const Block* block : blocks) {
    const bool experts = std::holds_alternative<Moe>(block->ffn);
    if (experts) draft.encoder_block->ffn = block->ffn;
    draft.encoder_dense.push_back(draft.has_experts && !experts);
  }
}

void clear_unused(Block& block) {
  if (Rope* rope = rope_of(block)) rope->fraction = 1.0;  // rotary_dim holds the same information
  const auto forget_rounding = [](GatedFfn* gated) {      // d_ff is explicit
    if (gated == nullptr) return;
    gated->multiple_of = GatedFfn{}.multiple_of;
    gated->rounding = GatedFfn{}.rounding;
  };
  forget_rounding(std::get_if<GatedFfn>(&block.ffn));
  auto* moe = std::get_if<Moe>(&block.ffn);
  if (moe == nullptr) return;
  moe->balance_loss = moe->z_loss = 0.0;
  forget_rounding(std::get_if<GatedFfn>(&moe->expert));
}

/// Normal form of the layer groups. Clears the model's position unless it is added to the embedding, because the layers
/// hold RoPE and ALiBi themselves.
void make_canonical(std::vector<LayerGroup>& layers, Position& position) {
  const bool added =
      std::holds_alternative<LearnedPosition>(position) || std::holds_alternative<SinusoidalPosition>(position);
  if (!added) position = NoPosition{};
  std::vector<Block> blocks;
  for (const Block* block : layer_blocks(layers)) blocks.push_back(*block);
  for (Block& block : blocks) clear_unused(block);
  layers = grouped(blocks);
}

}  // namespace

ArchSpec assemble(const Draft& draft) {
  ArchSpec spec = draft.spec;
  if (draft.rope) spec.position = *draft.rope;
  std::vector<Block> blocks;
  for (int64_t i = 0; i < draft.n_layers; ++i) blocks.push_back(layer_of(draft, i));
  spec.layers = grouped(blocks);
  if (!draft.encoder_block) return spec;
  std::vector<Block> encoder;
  for (int64_t i = 0; i < draft.n_encoder_layers; ++i) {
    encoder.push_back(*draft.encoder_block);
    if (at(draft.encoder_dense, i)) encoder.back().ffn = dense_of(draft);
  }
  spec.encoder->layers = grouped(encoder);
  return spec;
}

Draft draft_of(const ArchSpec& resolved) {
  Draft draft;
  draft.spec = resolved;
  draft.spec.layers.clear();
  const std::vector<const Block*> blocks = layer_blocks(resolved);
  draft.n_layers = static_cast<int64_t>(blocks.size());
  draft.block = *blocks.front();
  draft.first_unnormed = !draft.block.mixer_norm;
  draft.block.mixer_norm = true;
  note_mixers(draft, blocks);
  draft.sliding.resize(blocks.size());
  draft.unrotated.resize(blocks.size());
  draft.dense.resize(blocks.size());
  draft.has_experts = std::any_of(blocks.begin(), blocks.end(),
                                  [](const Block* block) { return std::holds_alternative<Moe>(block->ffn); });
  for (size_t i = 0; i < blocks.size(); ++i) note_layer(draft, i, *blocks[i]);
  if (resolved.encoder) take_encoder_apart(resolved.encoder->layers, draft);
  if (!draft.rope) draft.rope = draft.local;
  draft.scale_falls_by_layer = falls_by_layer(blocks);
  write_fraction(draft.rope, draft.block);
  write_fraction(draft.local, draft.block);
  return draft;
}

ArchSpec canonical(ArchSpec resolved) {
  resolved.about.clear();
  make_canonical(resolved.layers, resolved.position);
  if (resolved.encoder) make_canonical(resolved.encoder->layers, *resolved.encoder->position);
  return resolved;
}

}  // namespace lamina::io::hf
