#pragma once

#include "lamina/autograd/tape.h"
#include "lamina/ops/linear/linear_kernel.h"

// Parts of linear() that other operators reuse, such as feed_forward().

namespace lamina::ops {

/// Runs the layer with arguments that were already checked. Saves the pre-activation z if `keeps_z` and there is an
/// activation.
LinearForward run_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation, bool keeps_z,
                         bool settled = false);

/// Shape of linear()'s result.
Shape linear_shape(const Tensor& x, const Tensor& weight);

/// dz = dy · act'(z), in the dtype that the backward products read. Also computes dbias if defined.
Tensor gradient_of_activation(const Tensor& z, const Tensor& dy, Activation activation, const Tensor& dbias);

/// Runs a layer's backward from back.x, back.weight and back.dz. Adds the gradient of the weight to the node's input
/// number `weight`, and that of the bias to the next input. Computes back.dx if it is defined. `dbias` is the gradient
/// of the bias if it is already known.
void add_layer_gradients(Backward& b, int weight, LinearBackward& back, Tensor dbias = {});

}  // namespace lamina::ops
