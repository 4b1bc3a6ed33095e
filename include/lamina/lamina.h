#pragma once

// Everything a user of the library needs.
#include "lamina/autograd/tape.h"
#include "lamina/base/version.h"
#include "lamina/ops/norm/rms_norm.h"
#include "lamina/tensor/tensor.h"
