#include "lamina/nn/mixer.h"
#include "lamina/nn/mixers/attention.h"

namespace lamina::nn {
namespace {

/// One line per kind.
struct Maker {
  const arch::ArchSpec& spec;
  const arch::Block& block;
  const ParameterFactory& make;
  PositionTables& positions;

  using Made = std::unique_ptr<Mixer>;
  Made operator()(const arch::NoMixer& /*none*/) const { return nullptr; }
  Made operator()(const arch::Attention& a) const {
    if (std::holds_alternative<arch::TransformerXl>(*a.position)) return relative(a);
    return make_attention(spec, a, make, positions);
  }
  static Made relative(const arch::Attention& /*a*/) {
    throw Error("model: position 'transformer_xl' cannot be built yet");
  }
  Made operator()(const arch::Mla& /*m*/) const { throw Error("model: mixer 'mla' cannot be built yet"); }
  Made operator()(const arch::Mamba& /*m*/) const { throw Error("model: mixer 'mamba' cannot be built yet"); }
  Made operator()(const arch::Mamba2& /*m*/) const { throw Error("model: mixer 'mamba2' cannot be built yet"); }
  Made operator()(const arch::S4d& /*m*/) const { throw Error("model: mixer 's4d' cannot be built yet"); }
};

}  // namespace

std::unique_ptr<Mixer> make_mixer(const arch::ArchSpec& spec, const arch::Block& block, const ParameterFactory& make,
                                  PositionTables& positions) {
  return std::visit(Maker{spec, block, make, positions}, block.mixer);
}

}  // namespace lamina::nn
