#pragma once

#include <optional>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::io::hf {

/// An architecture as config.json files tell it: one block for all layers, and lists of what differs between them.
/// A family's config map fills it when reading and is filled from it when writing.
struct Draft {
  arch::ArchSpec spec;  ///< all but the layers; a Rope of the model stands in `rope`
  arch::Block block;    ///< what the layers have in common
  int64_t n_layers = 0;
  std::optional<arch::Rope> rope;   ///< the model's position, where it is one
  std::optional<arch::Rope> local;  ///< of layers with a window, where it differs
  std::vector<bool> sliding;        ///< layers that see a window only; empty: none
  std::optional<int64_t> window;    ///< its size
  std::vector<bool> unrotated;      ///< layers without position; empty: none
  std::vector<bool> dense;          ///< layers with dense_ffn in place of the block's experts; empty: none
  arch::GatedFfn dense_ffn;
  bool scale_falls_by_layer = false;  ///< layer i divides its attention scale by i + 1
};

/// The architecture a draft means, not resolved.
arch::ArchSpec assemble(const Draft& draft);
/// The draft that comes nearest to a resolved architecture: assemble() gives it back if a draft can mean it at all.
Draft take_apart(const arch::ArchSpec& resolved);

/// A resolved architecture without freedom of expression, for comparing: layers grouped one way, positions written in
/// the layers, and nothing that does not change the function the model computes.
arch::ArchSpec canonical(arch::ArchSpec resolved);

}  // namespace lamina::io::hf
