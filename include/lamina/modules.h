#pragma once

/// \file
/// The base class of modules and the named modules with PyTorch's seeded initialisation.
#include "lamina/nn/group_rms_norm.h"
#include "lamina/nn/init.h"
#include "lamina/nn/module.h"
#include "lamina/nn/ntk_aware_rope.h"
#include "lamina/nn/parallel_vocab_embedding.h"
#include "lamina/nn/vocab_embedding.h"
