#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// One parameter tensor of a resolved architecture.
struct Weight {
  std::string name;            ///< "mixer.q.weight" inside a block; "embedding.weight" outside
  std::string component;       ///< "q"; its row in the parameter table
  std::vector<int64_t> shape;  ///< [out, in] for a linear layer, [experts, out, in] for routed experts
  int64_t numel = 0;
  int64_t active = 0;    ///< parameters that one token uses
  bool product = false;  ///< multiplies every token: 2 FLOPs per active element
};

/// The weights of a layer with this block, in forward order. Throws if sizes overflow int64.
std::vector<Weight> block_weights(const ArchSpec& spec, const Block& block);

/// Embedding, positions, tables shared by layers, final norm and heads, without those of an encoder. A tied head is not
/// listed.
std::vector<Weight> outer_weights(const ArchSpec& spec);

/// The same of the encoder of an encoder–decoder, without its "encoder." prefix. A shared token table is not listed.
std::vector<Weight> encoder_outer_weights(const ArchSpec& spec);

}  // namespace lamina::arch
