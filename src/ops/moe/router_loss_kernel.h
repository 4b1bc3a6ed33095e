#pragma once

#include "lamina/ops/moe/router_loss.h"

namespace lamina::ops {

/// Kernel arguments of both losses.
struct RouterLossForward {
  Tensor logits;
  Tensor indices;  ///< i64, or undefined for the z-loss
  Tensor shares;   ///< [experts], output for the balance loss: f_e
  Tensor loss;     ///< [1]
};
struct RouterLossBackward {
  Tensor logits;
  Tensor shares;  ///< undefined for the z-loss
  Tensor dloss;
  Tensor dlogits;
};

namespace cpu {
void router_loss_forward(const RouterLossForward& args);
void router_loss_backward(const RouterLossBackward& args);
}  // namespace cpu
namespace cuda {
void router_loss_forward(const RouterLossForward& args);
void router_loss_backward(const RouterLossBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
