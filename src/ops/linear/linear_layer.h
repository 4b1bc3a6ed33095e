#pragma once

#include "lamina/autograd/tape.h"
#include "lamina/ops/linear/linear.h"

namespace lamina::ops {

/// The product and activation of checked arguments over x's rows; z is kept where `keeps_z` and there is an activation.
LinearForward run_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation,
                         bool keeps_z);

/// Shape of linear's result.
Shape linear_shape(const Tensor& x, const Tensor& weight);

/// dz = dy · act'(z) in the type that the products take.
Tensor gradient_of_activation(const Tensor& z, const Tensor& dy, Activation activation, const Tensor& dbias);

/// Backward of a layer from back.x, back.weight and back.dz: adds the gradients of the weight, the node's input
/// `weight`, and of the bias, the one behind it, and makes back.dx where it is defined. `dbias` is the bias's gradient
/// where it has been found already.
void add_layer_gradients(Backward& b, int weight, LinearBackward& back, Tensor dbias = {});

}  // namespace lamina::ops
