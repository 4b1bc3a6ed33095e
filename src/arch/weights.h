#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// One parameter tensor of a resolved architecture.
struct Weight {
  std::string name;            ///< "mixer.q.weight", inside a block; "embedding.weight" outside
  std::string component;       ///< "q"; the row of the parameter table it is counted in
  std::vector<int64_t> shape;  ///< a linear layer's is [out, in], a routed expert's [experts, out, in]
  int64_t numel = 0;
  int64_t active = 0;    ///< of these, how many a token meets
  bool product = false;  ///< multiplied with every token: 2 operations per active number
};

/// The weights of one layer made from `block`, in the order of the forward pass. Sizes beyond int64 are an Error.
std::vector<Weight> block_weights(const ArchSpec& spec, const Block& block);

/// Embedding, positions, tables that layers share, final norm and head. A tied head is not listed.
std::vector<Weight> outer_weights(const ArchSpec& spec);

}  // namespace lamina::arch
