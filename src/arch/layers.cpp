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

void add_written(const std::vector<LayerGroup>& layers, const std::string& prefix, int64_t d_model,
                 std::vector<WrittenBlock>& blocks) {
  for (size_t g = 0; g < layers.size(); ++g) {
    const LayerGroup& group = layers[g];
    for (size_t p = 0; p < group.pattern.size(); ++p) {
      const Block& block = group.pattern[p];
      blocks.push_back({&block, str(prefix, "layers[", g, "].pattern[", p, "]"),
                        bounded_product(group.repeat, block.repeat), !prefix.empty(), d_model});
    }
  }
}

/// The stack of an encoder or neighbour encoder as an architecture of its own, with the model's width.
ArchSpec stack_without_head(const ArchSpec& spec, const auto& encoder) {
  ArchSpec stack = spec;
  stack.encoder.reset();
  stack.retrieval.reset();
  stack.causal = false;
  stack.layers = encoder.layers;
  stack.position = encoder.position.value_or(spec.position);
  stack.final_norm = encoder.final_norm;
  stack.head = {};
  stack.head.tied = true;
  stack.head.scale = ConstantScale{};
  stack.pooling.reset();
  stack.classifier.reset();
  return stack;
}

}  // namespace

std::vector<WrittenBlock> written_blocks(const ArchSpec& spec) {
  std::vector<WrittenBlock> blocks;
  if (spec.encoder) add_written(spec.encoder->layers, "encoder.", spec.d_model, blocks);
  if (spec.retrieval) {
    add_written(spec.retrieval->layers, "retrieval.", spec.retrieval->d_model.value_or(spec.d_model), blocks);
  }
  add_written(spec.layers, "", spec.d_model, blocks);
  return blocks;
}

ArchSpec encoder_stack(const ArchSpec& spec) {
  LAMINA_CHECK(spec.encoder, "the architecture has no encoder; set encoder.layers");
  return stack_without_head(spec, *spec.encoder);
}

ArchSpec neighbour_stack(const ArchSpec& spec) {
  LAMINA_CHECK(spec.retrieval, "the architecture has no retrieval; set retrieval.at or retrieval.layers");
  const Retrieval& retrieval = *spec.retrieval;
  ArchSpec stack = stack_without_head(spec, retrieval);
  stack.d_model = retrieval.d_model.value_or(spec.d_model);
  if (!retrieval.shared_embedding.value_or(true)) stack.embedding.d_embed = stack.d_model;
  stack.embedding.segments.reset();
  stack.context = retrieval.length;
  return stack;
}

const Attention* attention_of(const Mixer& mixer) {
  if (const auto* both = std::get_if<AttentionMamba2>(&mixer)) return &both->attention;
  return std::get_if<Attention>(&mixer);
}

Attention* attention_of(Mixer& mixer) {
  if (auto* both = std::get_if<AttentionMamba2>(&mixer)) return &both->attention;
  return std::get_if<Attention>(&mixer);
}

std::string attention_key(const Mixer& mixer) {
  return std::holds_alternative<AttentionMamba2>(mixer) ? "mixer.attention" : "mixer";
}

const Mamba2* mamba2_of(const Mixer& mixer) {
  if (const auto* both = std::get_if<AttentionMamba2>(&mixer)) return &both->mamba2;
  return std::get_if<Mamba2>(&mixer);
}

bool is_causal(const ArchSpec& resolved) {
  const std::vector<WrittenBlock> blocks = written_blocks(resolved);
  return std::all_of(blocks.begin(), blocks.end(), [](const WrittenBlock& written) {
    const auto* a = attention_of(written.block->mixer);
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
    if (block.cross && input) slots.push_back(NormSlot::cross);
    if (block.cross && output) slots.push_back(NormSlot::cross_output);
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
