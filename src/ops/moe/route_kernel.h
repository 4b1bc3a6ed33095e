#pragma once

#include "lamina/ops/moe/route.h"

namespace lamina::ops {

/// Kernel arguments, shaped as in route_top_k().
struct RouteForward {
  Tensor logits;
  Tensor bias;  ///< [experts], accumulation type, or undefined
  RouteOptions options;
  Tensor weights;
  Tensor indices;
  Tensor counts;
};
struct RouteBackward {
  Tensor logits;
  Tensor indices;
  Tensor dweights;
  RouteOptions options;
  Tensor dlogits;
};

namespace cpu {
void route_forward(const RouteForward& args);
void route_backward(const RouteBackward& args);
}  // namespace cpu
namespace cuda {
void route_forward(const RouteForward& args);
void route_backward(const RouteBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
