#pragma once

#include <optional>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::io::hf {

/// An architecture in the form of config.json files: one block for all layers, and lists of per-layer differences. A
/// family's config map fills it when reading and reads from it when writing.
struct Draft {
  arch::ArchSpec spec;  ///< everything except the layers; RoPE is in `rope`
  arch::Block block;    ///< common to all layers
  int64_t n_layers = 0;
  std::optional<arch::Rope> rope;            ///< set if the model's position is RoPE
  std::optional<arch::Rope> local;           ///< RoPE of layers with a window, if it differs
  std::vector<bool> sliding;                 ///< layers with a sliding window; empty: none
  std::optional<int64_t> window;             ///< size of the window
  std::optional<int64_t> chunk;              ///< instead of a window: size of the chunks of those layers
  std::vector<bool> unrotated;               ///< layers without RoPE; empty: none
  std::optional<arch::QkNorm> rotated_norm;  ///< QK norm of the layers with RoPE only
  std::optional<arch::QueryTemperature> unrotated_temperature;  ///< temperature of the layers without RoPE only
  std::vector<bool> dense;  ///< layers with dense_ffn instead of the block's experts; empty: none
  arch::GatedFfn dense_ffn;
  bool has_experts = false;                   ///< set by take_apart(): some layer has experts
  std::optional<arch::PlainFfn> dense_plain;  ///< replaces dense_ffn
  std::optional<arch::Block> encoder_block;   ///< of an encoder–decoder: common to all layers of the encoder
  int64_t n_encoder_layers = 0;
  std::vector<bool> encoder_dense;         ///< as dense, for the encoder
  std::vector<bool> other;                 ///< layers with other_mixer instead of the block's mixer; empty: none
  std::optional<arch::Mixer> other_mixer;  ///< take_apart(): the first mixer of these layers
  bool first_unnormed = false;             ///< the first layer has no norm before its mixer
  bool scale_falls_by_layer = false;       ///< layer i divides its attention scale by i + 1
  bool headless = false;                   ///< an encoder without a masked-language-model head (HeadlessFiles)
};

/// The architecture of a draft, not resolved.
arch::ArchSpec assemble(const Draft& draft);
/// The nearest draft to a resolved architecture. assemble() restores the architecture if a draft can represent it.
Draft take_apart(const arch::ArchSpec& resolved);

/// Normal form of a resolved architecture, for comparisons: layers grouped in one way, positions stored in the layers,
/// and nothing that does not affect the function of the model.
arch::ArchSpec canonical(arch::ArchSpec resolved);

}  // namespace lamina::io::hf
