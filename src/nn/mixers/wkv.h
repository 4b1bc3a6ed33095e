#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Time mixing as arch::Wkv describes it. It caches the last token and the state of ops::wkv.
std::unique_ptr<Mixer> make_wkv(int64_t d_model, const arch::Wkv& spec, const ParameterFactory& make);

}  // namespace lamina::nn
