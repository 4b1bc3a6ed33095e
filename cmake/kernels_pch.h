// Precompiled for builds with one instruction set (src/CMakeLists.txt). foreach_target.h comes first, as in kernels:
// Highway then knows that it is included for one target only.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lamina/autograd/tape.h"
#include "lamina/base/simd-inl.h"
#include "lamina/ops/launch.h"
#include "lamina/tensor/tensor.h"
