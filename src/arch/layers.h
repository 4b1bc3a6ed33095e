#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// One block as written in the file.
struct WrittenBlock {
  const Block* block;
  std::string path;  ///< layers[0].pattern[1]
  int64_t times;     ///< number of layers with this block
};
std::vector<WrittenBlock> written_blocks(const ArchSpec& spec);

/// Number of layers, saturated at 2^31.
int64_t layer_count(const ArchSpec& spec);

/// The block of every layer, in order. The pointers are valid as long as `spec`.
std::vector<const Block*> layer_blocks(const ArchSpec& spec);

/// The norms of a block. mixer, ffn and both come before the sublayer, or after the residual addition with placement
/// post; the output norms come after the sublayer, inside the branch.
enum class NormSlot : uint8_t { both, mixer, ffn, mixer_output, ffn_output };
constexpr auto names_of(NormSlot) {
  return std::array<std::string_view, 5>{"norm", "mixer_norm", "ffn_norm", "mixer_output_norm", "ffn_output_norm"};
}
/// The norms of the block, in forward order.
std::vector<NormSlot> norm_slots(const Block& block);

/// Extra dimensions of queries and keys beyond head_dim that hold rounded ALiBi biases: one per query head of a KV
/// head. 0: none.
int64_t rounded_bias_width(const Attention& attention);

bool has_mixer(const Block& block);
bool has_ffn(const Block& block);

}  // namespace lamina::arch
