#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// RWKV channel mixing (see arch::ChannelMix). Caches the last token.
std::unique_ptr<Mixer> make_channel_mix(int64_t d_model, const arch::ChannelMix& spec, const ParameterFactory& make);

}  // namespace lamina::nn
