#pragma once

#include <vector>

#include "lamina/ops/optim/slots.h"

namespace lamina::ops {

/// Options of sgd().
struct SgdOptions {
  double momentum = 0.0;  ///< decay of the momentum; 0: none
  bool nesterov = false;  ///< Nesterov momentum: the update looks one step ahead
};

/// Parameter, gradient and state of one tensor for sgd().
struct SgdSlot : ParamSlot {
  Tensor momentum;  ///< f32 (f64 for f64), initially zeros; updated. Undefined if the momentum option is 0
};

/// One SGD step for all slots in one pass, without dampening:
///   g ← g + weight_decay · p      b ← momentum · b + g      p ← p − lr · (nesterov ? g + momentum · b : b)
/// With momentum 0: p ← p − lr · g. Parameters must not overlap in memory.
/// Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning".
void sgd(std::vector<SgdSlot> slots, const SgdOptions& options = {});

}  // namespace lamina::ops
