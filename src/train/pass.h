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
  int64_t first_row = 0;   ///< number of the first row in the whole batch; dropout draws by it
  Tensor source;           ///< [rows, source length] i64 of an encoder–decoder; undefined: no encoder
  Tensor neighbours;       ///< [rows, chunks, neighbours, tokens] i64 of a model with retrieval; undefined: none
  /// Whole sequences of which the rows are this rank's share (context parallel); null: they are whole.
  std::shared_ptr<const ops::ContextShare> context = {};
};

/// Rows `begin` … `begin` + `rows` − 1 of a batch on `device`, for pass `index`.
PassInput pass_input(const data::Batch& batch, int64_t begin, int64_t rows, const Device& device, uint64_t index);

/// The part of a batch that a rank of `ranks` computes if they share the positions of every row (context parallel).
struct SharedBatch {
  data::Batch batch;                                 ///< this rank's positions of every row; without documents
  std::shared_ptr<const ops::ContextShare> context;  ///< the whole rows
};
SharedBatch shared_batch(const data::Batch& batch, const std::shared_ptr<comm::Communicator>& ranks);

/// The largest lengths of a recipe's batches.
struct PassLengths {
  int64_t source = 0;  ///< 0: no encoder
  int64_t ids = 0;     ///< of the model's, or the decoder's, tokens
};
/// An encoder–decoder's recipe without data, as in plans, has a source and a target of `length` tokens each. Throws
/// Error if the task or objective has no source.
PassLengths pass_lengths(const Recipe& recipe);
/// The shape of PassInput::neighbours for a recipe with retrieval, without values; undefined: no retrieval.
Tensor empty_neighbours(const Recipe& recipe, int64_t rows, const Device& device);
/// Sizes of the architecture's neighbours; requires retrieval.
data::NeighbourSizes neighbour_sizes(const arch::ArchSpec& resolved);
/// FLOPs of forward and backward per token of tokens_per_step().
double training_flops_per_token(const Recipe& recipe);

/// Input of pass i of an update.
using PassInputAt = std::function<PassInput(int64_t i)>;
/// Called with the scalar loss of pass i before its backward. Returning false skips that backward.
using OnPassLoss = std::function<bool(int64_t i, const Tensor& loss)>;

/// Losses of a pass, recorded on `tape`. `states` is the residual stream of the pipeline stage before, if there is one;
/// `chunk` is that of nn::RunOptions.
nn::StageOutput pass_output(nn::Model& model, Tape& tape, const Recipe& recipe, const PassInput& input,
                            const Tensor& states = {}, int chunk = 0);
/// Scalar total loss of a pass of a model without pipeline stages.
Tensor pass_loss(nn::Model& model, Tape& tape, const Recipe& recipe, const PassInput& input);

/// Clears the gradients, then runs forward and backward of `count` passes, which add their gradients / accumulation.
/// Updates on the host, in a CUDA graph and on a meta device all run their passes here.
void run_passes(nn::Model& model, Tape& tape, const Recipe& recipe, int64_t count, const PassInputAt& input_at,
                const OnPassLoss& on_loss = {});

}  // namespace lamina::train
