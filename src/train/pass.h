#pragma once

#include "lamina/autograd/tape.h"
#include "lamina/nn/model.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// Inputs of one pass. An update consists of `accumulation` passes.
struct PassInput {
  Tensor ids;              ///< [rows, length] i64
  Tensor targets;          ///< [rows, length] i64
  Tensor document_starts;  ///< undefined: each row is one document
  uint64_t index = 0;      ///< selects the random streams of the pass
};

/// Scalar total loss of the recipe, recorded on `tape`.
Tensor pass_loss(nn::Model& model, Tape& tape, const Recipe& recipe, const PassInput& input);
/// Adds the gradients of `loss` / accumulation.
void pass_backward(Tape& tape, const Recipe& recipe, const Tensor& loss);

}  // namespace lamina::train
