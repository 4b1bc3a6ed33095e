#pragma once

#include <functional>

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
  int64_t first_row = 0;   ///< number of the first row in the whole batch; dropout draws by it
};

/// Input of pass i of an update.
using PassInputAt = std::function<PassInput(int64_t i)>;
/// Called with the scalar loss of pass i before its backward. Returning false skips that backward.
using OnPassLoss = std::function<bool(int64_t i, const Tensor& loss)>;

/// Scalar total loss of a pass, recorded on `tape`.
Tensor pass_loss(nn::Model& model, Tape& tape, const Recipe& recipe, const PassInput& input);

/// Clears the gradients, then runs forward and backward of `count` passes, which add their gradients / accumulation.
/// Updates on the host, in a CUDA graph and on a meta device all run their passes here.
void run_passes(nn::Model& model, Tape& tape, const Recipe& recipe, int64_t count, const PassInputAt& input_at,
                const OnPassLoss& on_loss = {});

}  // namespace lamina::train
