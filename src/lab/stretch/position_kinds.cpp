#include "lamina/lab/stretch/position_kinds.h"

#include <algorithm>

#include "lamina/arch/layers.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/error.h"

namespace lamina::lab {
namespace {

template <class Position>
void set_scaling(Position& position, const arch::RopeScaling& scaling) {
  if (auto* rope = std::get_if<arch::Rope>(&position)) rope->scaling = scaling;
}

/// The position field of Attention and Mla. Null for other mixers.
std::optional<arch::LayerPosition>* position_of(arch::Mixer& mixer) {
  if (auto* attention = arch::attention_of(mixer)) return &attention->position;
  if (auto* latent = std::get_if<arch::Mla>(&mixer)) return &latent->position;
  return nullptr;
}

}  // namespace

std::vector<PositionKind> position_kinds(int64_t trained_length) {
  return {{"learned", "learned", {"position=learned"}},
          // Sinusoids are much larger than embeddings that are initialised with deviation 0.02. So the embeddings are
          // scaled up, as in arXiv:1706.03762.
          {"sinusoidal", "sinusoidal", {"position=sinusoidal", "embedding.scale=sqrt_d_model"}},
          {"t5", "T5 buckets", {"position=t5"}},
          {kScaledKind, "RoPE", {"position=rope"}},
          {"alibi", "ALiBi", {"position=alibi"}},
          {"none", "none (NoPE)", {"position=none"}},
          {"window",
           "RoPE, window",
           {"position=rope", str(R"(layers[*].pattern[*].mixer.pattern={"kind": "window", "size": )",
                                 std::max<int64_t>(1, trained_length / 4), "}")}}};
}

const std::vector<ScalingKind>& rope_scalings() {
  static const std::vector<ScalingKind> all = {
      {"pi", "position interpolation",
       [](double factor, int64_t) -> arch::RopeScaling { return arch::LinearScaling{factor}; }},
      {"ntk", "NTK", [](double factor, int64_t) -> arch::RopeScaling { return arch::NtkScaling{factor}; }},
      {"dynamic_ntk", "dynamic NTK",
       [](double, int64_t trained) -> arch::RopeScaling {
         return arch::DynamicNtkScaling{1.0, trained};
       }},
      {"yarn", "YaRN",
       [](double factor, int64_t trained) -> arch::RopeScaling {
         arch::YarnScaling yarn;
         yarn.factor = factor;
         yarn.original_length = trained;
         return yarn;
       }},
  };
  return all;
}

bool has_rope(const arch::ArchSpec& resolved) {
  for (const arch::Block* block : arch::layer_blocks(resolved)) {
    arch::Mixer mixer = block->mixer;
    const auto* position = position_of(mixer);
    if (position != nullptr && *position && std::holds_alternative<arch::Rope>(**position)) return true;
  }
  return false;
}

arch::ArchSpec with_scaling(arch::ArchSpec resolved, const arch::RopeScaling& scaling) {
  set_scaling(resolved.position, scaling);
  for (arch::LayerGroup& group : resolved.layers) {
    for (arch::Block& block : group.pattern) {
      auto* position = position_of(block.mixer);
      if (position != nullptr && *position) set_scaling(**position, scaling);
    }
  }
  return arch::resolve(resolved, "scaled architecture");
}

}  // namespace lamina::lab
