#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Channel mixing as arch::ChannelMix describes it. It caches the last token.
std::unique_ptr<Mixer> make_channel_mix(int64_t d_model, const arch::ChannelMix& spec, const ParameterFactory& make);

}  // namespace lamina::nn
