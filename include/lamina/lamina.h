#pragma once

// Tensors, autograd, operators, modules, optimizers and file formats. For whole models see model.h and training.h.
#include "lamina/autograd/tape.h"
#include "lamina/base/version.h"
#include "lamina/io/hf.h"
#include "lamina/io/llama2c.h"
#include "lamina/io/safetensors.h"
#include "lamina/modules.h"
#include "lamina/ops.h"
#include "lamina/tensor/tensor.h"
#include "lamina/text/grammar/grammar_state.h"
#include "lamina/train/optimizer.h"
