#pragma once

/// \file
/// Architectures, and models built from them: nn::Model(arch::resolve(arch::load_arch("llama-tiny")), device).
#include "lamina/arch/attention.h"
#include "lamina/arch/count.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/ffn.h"
#include "lamina/arch/norm.h"
#include "lamina/arch/plan.h"
#include "lamina/arch/position.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/problem.h"
#include "lamina/arch/resolve.h"
#include "lamina/arch/spec.h"
#include "lamina/arch/ssm.h"
#include "lamina/nn/model.h"
#include "lamina/nn/model_cache.h"
