#pragma once

#include "lamina/autograd/tape.h"
#include "lamina/nn/model.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// What one pass of an update learns from.
struct PassInput {
  Tensor ids;              ///< [rows, length] i64
  Tensor targets;          ///< the same
  Tensor document_starts;  ///< undefined: a row is one document
  uint64_t index = 0;      ///< names the pass's random streams
};

/// The loss that a recipe has minimised, one number, recorded on `tape`.
Tensor pass_loss(nn::Model& model, Tape& tape, const Recipe& recipe, const PassInput& input);
/// Adds its gradients, as one of the update's passes.
void pass_backward(Tape& tape, const Recipe& recipe, const Tensor& loss);

}  // namespace lamina::train
