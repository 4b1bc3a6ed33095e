#pragma once

#include <optional>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::io::hf {

/// An architecture in the form of config.json files: one block for all layers, and lists of per-layer differences. When
/// reading, a family's config map fills the draft; when writing, it reads the draft.
struct Draft {
  arch::ArchSpec spec;  ///< everything except the layers; RoPE is in `rope`
  arch::Block block;    ///< settings common to all layers
  int64_t n_layers = 0;
  std::optional<arch::Rope> rope;            ///< set if the model's position is RoPE
  std::optional<arch::Rope> local;           ///< RoPE of the layers with a sliding window, if it differs
  std::vector<bool> sliding;                 ///< layers with a sliding window; empty: none
  std::optional<int64_t> window;             ///< size of the window
  std::optional<int64_t> chunk;              ///< chunk size, if those layers attend within chunks instead of a window
  std::vector<bool> unrotated;               ///< layers without RoPE; empty: none
  std::optional<arch::QkNorm> rotated_norm;  ///< QK norm that only the layers with RoPE have
  std::optional<arch::QueryTemperature> unrotated_temperature;  ///< temperature that only the layers without RoPE have
  std::vector<bool> dense;  ///< layers with dense_ffn instead of the block's experts; empty: none
  arch::GatedFfn dense_ffn;
  bool has_experts = false;                   ///< set by draft_of(): some layer has experts
  std::optional<arch::PlainFfn> dense_plain;  ///< replaces dense_ffn
  std::optional<arch::Block> encoder_block;   ///< settings common to all encoder layers
  int64_t n_encoder_layers = 0;
  std::vector<bool> encoder_dense;         ///< encoder layers without experts, like `dense`
  std::vector<bool> other;                 ///< layers with other_mixer instead of the block's mixer; empty: none
  std::optional<arch::Mixer> other_mixer;  ///< the mixer of these layers; draft_of() stores the first one it finds
  bool first_unnormed = false;             ///< the first layer has no norm before its mixer
  bool scale_falls_by_layer = false;       ///< layer i divides its attention scale by i + 1
  bool headless = false;                   ///< an encoder without a masked-language-model head (HeadlessFiles)
};

/// The architecture that a draft describes, not resolved.
arch::ArchSpec assemble(const Draft& draft);
/// The draft that is closest to a resolved architecture. If a draft can represent it exactly, assemble() restores it.
Draft draft_of(const arch::ArchSpec& resolved);

/// Normal form of a resolved architecture, for comparisons. Layers are grouped in one fixed way, positions are stored
/// in the layers, and fields without effect on the model's output have their defaults.
arch::ArchSpec canonical(arch::ArchSpec resolved);

}  // namespace lamina::io::hf
