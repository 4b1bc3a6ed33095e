#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// One block as the file writes it.
struct WrittenBlock {
  const Block* block;
  std::string path;  ///< layers[0].pattern[1]
  int64_t times;     ///< layers made from it
};
std::vector<WrittenBlock> written_blocks(const ArchSpec& spec);

/// Number of layers; beyond 2^31 it stays there.
int64_t layer_count(const ArchSpec& spec);

/// The block of every layer, from the first to the last. The pointers live as long as `spec` does.
std::vector<const Block*> layer_blocks(const ArchSpec& spec);

/// The norms of a block, by what they belong to. mixer, ffn and both stand before the sublayer, or behind the residual
/// addition when the placement is post; the output norms stand inside the branch, behind the sublayer.
enum class NormSlot : uint8_t { both, mixer, ffn, mixer_output, ffn_output };
constexpr auto names_of(NormSlot) {
  return std::array<std::string_view, 5>{"norm", "mixer_norm", "ffn_norm", "mixer_output_norm", "ffn_output_norm"};
}
/// Which norms the block has, in the order of the forward pass.
std::vector<NormSlot> norm_slots(const Block& block);

/// Dimensions by which queries and keys of a resolved mixer are longer than head_dim, because they carry rounded ALiBi
/// biases: one for each query head that shares a key. 0: none.
int64_t rounded_bias_width(const Attention& attention);

bool has_mixer(const Block& block);
bool has_ffn(const Block& block);

}  // namespace lamina::arch
