#include "lamina/nn/mixer.h"
#include "lamina/nn/mixers/attention.h"
#include "lamina/nn/mixers/attention_mamba2.h"
#include "lamina/nn/mixers/channel_mix.h"
#include "lamina/nn/mixers/gated_delta.h"
#include "lamina/nn/mixers/lightning.h"
#include "lamina/nn/mixers/mamba.h"
#include "lamina/nn/mixers/mamba2.h"
#include "lamina/nn/mixers/mla.h"
#include "lamina/nn/mixers/relative_attention.h"
#include "lamina/nn/mixers/rg_lru.h"
#include "lamina/nn/mixers/s4d.h"
#include "lamina/nn/mixers/short_conv.h"
#include "lamina/nn/mixers/wkv.h"

namespace lamina::nn {
namespace {

struct MixerMaker {
  const arch::ArchSpec& spec;
  const arch::Block& block;
  const ParameterFactory& make;
  PositionTables& positions;

  using Made = std::unique_ptr<Mixer>;
  Made operator()(const arch::NoMixer& /*none*/) const { return nullptr; }
  Made operator()(const arch::Attention& a) const {
    const bool relative = std::holds_alternative<arch::TransformerXl>(*a.position);
    return relative ? make_relative_attention(spec, a, make, positions) : make_attention(spec, a, make, positions);
  }
  Made operator()(const arch::Mla& m) const { return make_mla(spec.d_model, m, make, positions); }
  Made operator()(const arch::Mamba& m) const { return make_mamba(spec.d_model, m, make); }
  Made operator()(const arch::Mamba2& m) const { return make_mamba2(spec.d_model, m, make); }
  Made operator()(const arch::S4d& m) const { return make_s4d(spec.d_model, m, make); }
  Made operator()(const arch::ShortConv& m) const { return make_short_conv(spec.d_model, m, make); }
  Made operator()(const arch::RgLru& m) const { return make_rg_lru(spec.d_model, m, make); }
  Made operator()(const arch::Lightning& m) const { return make_lightning(spec, m, make); }
  Made operator()(const arch::Wkv& m) const { return make_wkv(spec.d_model, m, make); }
  Made operator()(const arch::ChannelMix& m) const { return make_channel_mix(spec.d_model, m, make); }
  Made operator()(const arch::GatedDelta& m) const { return make_gated_delta(spec.d_model, m, make); }
  Made operator()(const arch::AttentionMamba2& m) const {
    return make_attention_mamba2(m, (*this)(m.attention), (*this)(m.mamba2));
  }
};

}  // namespace

std::unique_ptr<Mixer> make_mixer(const arch::ArchSpec& spec, const arch::Block& block, const ParameterFactory& make,
                                  PositionTables& positions) {
  return std::visit(MixerMaker{spec, block, make, positions}, block.mixer);
}

}  // namespace lamina::nn
