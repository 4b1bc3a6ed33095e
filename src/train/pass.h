#pragma once

#include <functional>

#include "lamina/autograd/tape.h"
#include "lamina/data/neighbours.h"
#include "lamina/nn/model.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// Inputs of one pass. An update consists of `accumulation` passes.
struct PassInput {
  Tensor ids;              ///< [rows, length] i64
  Tensor targets;          ///< [rows, length] i64
  Tensor document_starts;  ///< undefined: each row is one document
  uint64_t index = 0;      ///< selects the random streams of the pass
  int64_t first_row = 0;   ///< index of the first row in the whole batch; dropout depends on it
  Tensor source;           ///< [rows, source length] i64 of an encoder–decoder; undefined: no encoder
  Tensor neighbours;       ///< [rows, chunks, neighbours, tokens] i64 of a model with retrieval; undefined: none
  /// Context parallelism: the whole sequences of which the rows are this rank's share. Null: the rows are whole
  /// sequences.
  std::shared_ptr<const ops::ContextShare> context = {};
};

/// Rows [begin, begin + rows) of a batch on `device`, as the input of pass `index`.
PassInput pass_input(const data::Batch& batch, int64_t begin, int64_t rows, const Device& device, uint64_t index);

/// The part of a batch that one rank computes if ranks divide the positions of every row (context parallelism).
struct SharedBatch {
  data::Batch batch;                                 ///< this rank's positions of every row, without documents
  std::shared_ptr<const ops::ContextShare> context;  ///< describes the whole rows, of which this rank has a share
};
SharedBatch shared_batch(const data::Batch& batch, const std::shared_ptr<comm::Communicator>& ranks);

/// The largest lengths of a recipe's batches.
struct PassLengths {
  int64_t source = 0;  ///< 0: no encoder
  int64_t ids = 0;     ///< tokens of the model or, with an encoder, of the decoder
};
/// The lengths for a recipe. Without data, as in plans, an encoder–decoder model has a source and a target of `length`
/// tokens each. Throws an Error if the task or objective has no source.
PassLengths pass_lengths(const Recipe& recipe);
/// PassInput::neighbours for a recipe with retrieval, with shape but without values. Undefined without retrieval.
Tensor empty_neighbours(const Recipe& recipe, int64_t rows, const Device& device);
/// Sizes of the architecture's neighbours. Requires retrieval.
data::NeighbourSizes neighbour_sizes(const arch::ArchSpec& resolved);
/// FLOPs of forward and backward per token, as counted by tokens_per_step().
double training_flops_per_token(const Recipe& recipe);

/// Returns the input of pass i of an update.
using PassInputAt = std::function<PassInput(int64_t i)>;
/// Called with the scalar loss of pass i before its backward. Returning false skips the backward.
using OnPassLoss = std::function<bool(int64_t i, const Tensor& loss)>;

/// The losses of a pass, recorded on `tape`. `states` is the residual stream of the previous pipeline stage, if there
/// is one. `chunk`: see nn::RunOptions.
nn::StageOutput pass_output(nn::Model& model, Tape& tape, const Recipe& recipe, const PassInput& input,
                            const Tensor& states = {}, int chunk = 0);
/// The scalar total loss of a pass, for a model without pipeline stages.
Tensor pass_loss(nn::Model& model, Tape& tape, const Recipe& recipe, const PassInput& input);

/// Clears the gradients, then runs forward and backward of `count` passes. Each adds its gradient divided by
/// `accumulation`. Updates on the host, in a CUDA graph and on a meta device all use this function.
void run_passes(nn::Model& model, Tape& tape, const Recipe& recipe, int64_t count, const PassInputAt& input_at,
                const OnPassLoss& on_loss = {});

}  // namespace lamina::train
