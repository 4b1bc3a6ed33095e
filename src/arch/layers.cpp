#include "lamina/arch/layers.h"

#include <algorithm>

#include "lamina/base/error.h"

namespace lamina::arch {
namespace {

constexpr int64_t kMany = int64_t{1} << 31;

int64_t bounded_product(int64_t a, int64_t b) {
  a = std::clamp<int64_t>(a, 0, kMany);
  b = std::clamp<int64_t>(b, 0, kMany);
  return std::min(a * b, kMany);
}

void add_written(const std::vector<LayerGroup>& layers, bool in_encoder, std::vector<WrittenBlock>& blocks) {
  const char* prefix = in_encoder ? "encoder." : "";
  for (size_t g = 0; g < layers.size(); ++g) {
    const LayerGroup& group = layers[g];
    for (size_t p = 0; p < group.pattern.size(); ++p) {
      const Block& block = group.pattern[p];
      blocks.push_back({&block, str(prefix, "layers[", g, "].pattern[", p, "]"),
                        bounded_product(group.repeat, block.repeat), in_encoder});
    }
  }
}

}  // namespace

std::vector<WrittenBlock> written_blocks(const ArchSpec& spec) {
  std::vector<WrittenBlock> blocks;
  if (spec.encoder) add_written(spec.encoder->layers, true, blocks);
  add_written(spec.layers, false, blocks);
  return blocks;
}

ArchSpec encoder_stack(const ArchSpec& spec) {
  LAMINA_CHECK(spec.encoder, "the architecture has no encoder; set encoder.layers");
  ArchSpec stack = spec;
  stack.encoder.reset();
  stack.causal = false;
  stack.layers = spec.encoder->layers;
  stack.position = spec.encoder->position.value_or(spec.position);
  stack.final_norm = spec.encoder->final_norm;
  stack.head = {};
  stack.head.tied = true;
  stack.head.scale = ConstantScale{};
  stack.pooling.reset();
  stack.classifier.reset();
  return stack;
}

bool is_causal(const ArchSpec& resolved) {
  const std::vector<WrittenBlock> blocks = written_blocks(resolved);
  return std::all_of(blocks.begin(), blocks.end(), [](const WrittenBlock& written) {
    const auto* a = std::get_if<Attention>(&written.block->mixer);
    return written.in_encoder || a == nullptr || a->causal.value_or(true);
  });
}

int64_t layer_count(const ArchSpec& spec) {
  int64_t count = 0;
  for (const WrittenBlock& written : written_blocks(spec)) count = std::min(count + written.times, kMany);
  return count;
}

std::vector<const Block*> layer_blocks(const ArchSpec& spec) { return layer_blocks(spec.layers); }

std::vector<const Block*> layer_blocks(const std::vector<LayerGroup>& layers) {
  std::vector<const Block*> blocks;
  for (const LayerGroup& group : layers) {
    for (int64_t r = 0; r < group.repeat; ++r) {
      for (const Block& block : group.pattern) blocks.insert(blocks.end(), static_cast<size_t>(block.repeat), &block);
    }
  }
  return blocks;
}

int64_t rounded_bias_width(const Attention& attention) {
  const auto* alibi = attention.position ? std::get_if<Alibi>(&*attention.position) : nullptr;
  if (alibi == nullptr || alibi->rounding == BiasRounding::f32) return 0;
  const int64_t keys = attention.n_kv_heads.value_or(attention.n_heads);
  return keys > 0 ? attention.n_heads / keys : 0;
}

bool has_mixer(const Block& block) { return !std::holds_alternative<NoMixer>(block.mixer); }
bool has_ffn(const Block& block) { return !std::holds_alternative<NoFfn>(block.ffn); }

std::vector<NormSlot> norm_slots(const Block& block) {
  const bool output = block.placement == Placement::sandwich || block.placement == Placement::branch_post;
  const bool input = block.placement != Placement::branch_post;
  std::vector<NormSlot> slots;
  const auto* parallel = std::get_if<ParallelWiring>(&block.wiring);
  if (parallel != nullptr && (parallel->shared_norm || block.placement == Placement::post)) {
    if (input) slots.push_back(NormSlot::both);
    if (output) slots.push_back(NormSlot::mixer_output);
    if (output) slots.push_back(NormSlot::ffn_output);
    return slots;
  }
  if (has_mixer(block) && input && block.mixer_norm) slots.push_back(NormSlot::mixer);
  if (has_mixer(block) && output) slots.push_back(NormSlot::mixer_output);
  if (block.cross && input) slots.push_back(NormSlot::cross);
  if (block.cross && output) slots.push_back(NormSlot::cross_output);
  if (has_ffn(block) && input) slots.push_back(NormSlot::ffn);
  if (has_ffn(block) && output) slots.push_back(NormSlot::ffn_output);
  return slots;
}

}  // namespace lamina::arch
