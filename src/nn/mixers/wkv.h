#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// RWKV time mixing (see arch::Wkv). Caches the last token and the state of ops::wkv.
std::unique_ptr<Mixer> make_wkv(int64_t d_model, const arch::Wkv& spec, const ParameterFactory& make);

}  // namespace lamina::nn
