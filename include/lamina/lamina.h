#pragma once

// Everything a user of the library needs.
#include "lamina/autograd/tape.h"
#include "lamina/base/version.h"
#include "lamina/io/safetensors.h"
#include "lamina/modules.h"
#include "lamina/ops/embedding/embedding.h"
#include "lamina/ops/norm/rms_norm.h"
#include "lamina/ops/position/rotary.h"
#include "lamina/ops/position/tables.h"
#include "lamina/tensor/tensor.h"
