#pragma once

#include "lamina/autograd/tape.h"
#include "lamina/ops/linear/linear_kernel.h"

namespace lamina::ops {

/// Runs product and activation on checked arguments; saves z if `keeps_z` and there is an activation.
LinearForward run_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation, bool keeps_z,
                         bool settled = false);

/// Shape of the result of linear().
Shape linear_shape(const Tensor& x, const Tensor& weight);

/// dz = dy · act'(z) in the dtype that the products take.
Tensor gradient_of_activation(const Tensor& z, const Tensor& dy, Activation activation, const Tensor& dbias);

/// Backward of a layer from back.x, back.weight and back.dz. Adds the gradients of the node's input `weight` and of the
/// next input, the bias, and computes back.dx if defined. `dbias` is the gradient of the bias if already known.
void add_layer_gradients(Backward& b, int weight, LinearBackward& back, Tensor dbias = {});

}  // namespace lamina::ops
