#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// One block as it is written in the file.
struct WrittenBlock {
  const Block* block;
  std::string path;  ///< layers[0].pattern[1]
  int64_t times;     ///< number of layers with this block
  bool in_encoder;   ///< part of the encoder (path "encoder.…") or the neighbour encoder (path "retrieval.…")
  int64_t d_model;   ///< width of its stack
};
/// All blocks: those of the encoder or neighbour encoder, if there is one, then those of `layers`.
std::vector<WrittenBlock> written_blocks(const ArchSpec& spec);

/// Number of layers, including those of an encoder. Saturates at 2^31.
int64_t layer_count(const ArchSpec& spec);

/// The block of every layer in `layers`, in order. The pointers are valid as long as `spec` exists.
std::vector<const Block*> layer_blocks(const ArchSpec& spec);
std::vector<const Block*> layer_blocks(
    const std::vector<LayerGroup>& layers);  ///< The pointers are valid as long as `layers` exists.

/// The encoder of an encoder–decoder model as an architecture of its own, without a head. Resolved if `spec` is
/// resolved.
ArchSpec encoder_stack(const ArchSpec& spec);
/// The neighbour encoder of a model with retrieval as an architecture of its own.
ArchSpec neighbour_stack(const ArchSpec& spec);

/// The norms of a block. `mixer`, `ffn` and `both` (shared by the two) come before the sublayer or, with placement
/// post, after the residual addition. The output norms come after the sublayer, inside the branch.
enum class NormSlot : uint8_t { both, mixer, ffn, mixer_output, ffn_output, cross, cross_output };
constexpr auto names_of(NormSlot) {
  return std::array<std::string_view, 7>{
      "norm", "mixer_norm", "ffn_norm", "mixer_output_norm", "ffn_output_norm", "cross_norm", "cross_output_norm"};
}
/// The norms that a block has, in forward order.
std::vector<NormSlot> norm_slots(const Block& block);

/// Number of extra elements of queries and keys beyond head_dim that hold rounded ALiBi biases: one for each query head
/// of a KV head. 0 without rounded biases.
int64_t rounded_bias_width(const Attention& attention);

/// Whether the model can generate text: every attention of `layers` is causal.
bool is_causal(const ArchSpec& resolved);

/// The attention of a mixer, also of one that combines attention and a state space. Null if it has none.
const Attention* attention_of(const Mixer& mixer);
Attention* attention_of(Mixer& mixer);
/// The key of the attention in a block: "mixer", or "mixer.attention" if the mixer also has a state space.
std::string attention_key(const Mixer& mixer);
/// The Mamba-2 of a mixer, also of one that combines it with attention. Null if it has none.
const Mamba2* mamba2_of(const Mixer& mixer);

bool has_mixer(const Block& block);
bool has_ffn(const Block& block);

}  // namespace lamina::arch
