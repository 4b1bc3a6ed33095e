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

}  // namespace

std::vector<WrittenBlock> written_blocks(const ArchSpec& spec) {
  std::vector<WrittenBlock> blocks;
  for (size_t g = 0; g < spec.layers.size(); ++g) {
    const LayerGroup& group = spec.layers[g];
    for (size_t p = 0; p < group.pattern.size(); ++p) {
      const Block& block = group.pattern[p];
      blocks.push_back({&block, str("layers[", g, "].pattern[", p, "]"), bounded_product(group.repeat, block.repeat)});
    }
  }
  return blocks;
}

int64_t layer_count(const ArchSpec& spec) {
  int64_t count = 0;
  for (const WrittenBlock& written : written_blocks(spec)) count = std::min(count + written.times, kMany);
  return count;
}

std::vector<const Block*> layer_blocks(const ArchSpec& spec) {
  std::vector<const Block*> blocks;
  for (const LayerGroup& group : spec.layers) {
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
  if (has_mixer(block) && input) slots.push_back(NormSlot::mixer);
  if (has_mixer(block) && output) slots.push_back(NormSlot::mixer_output);
  if (has_ffn(block) && input) slots.push_back(NormSlot::ffn);
  if (has_ffn(block) && output) slots.push_back(NormSlot::ffn_output);
  return slots;
}

}  // namespace lamina::arch
