#pragma once

// Builds a model from a preset or architecture file: nn::Model(arch::resolve(arch::load_arch("llama-tiny")), device).
#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/nn/model.h"
