#pragma once

#include "lamina/ops/optim/adamw.h"

// Kernels of adamw(). The slots have been checked.

namespace lamina::ops {

namespace cpu {
void adamw_update(const std::vector<AdamWSlot>& slots, const AdamWOptions& options);
}  // namespace cpu
namespace cuda {
void adamw_update(const std::vector<AdamWSlot>& slots, const AdamWOptions& options);
}  // namespace cuda

}  // namespace lamina::ops
