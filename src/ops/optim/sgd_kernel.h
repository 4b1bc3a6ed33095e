#pragma once

#include "lamina/ops/optim/sgd.h"

// Kernels of sgd(). The slots have been checked.

namespace lamina::ops {

namespace cpu {
void sgd_update(const std::vector<SgdSlot>& slots, const SgdOptions& options);
}  // namespace cpu
namespace cuda {
void sgd_update(const std::vector<SgdSlot>& slots, const SgdOptions& options);
}  // namespace cuda

}  // namespace lamina::ops
