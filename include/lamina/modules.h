#pragma once

#include "lamina/nn/group_rms_norm.h"
#include "lamina/nn/init.h"
#include "lamina/nn/module.h"
#include "lamina/nn/ntk_aware_rope.h"
#include "lamina/nn/parallel_vocab_embedding.h"
#include "lamina/nn/vocab_embedding.h"
