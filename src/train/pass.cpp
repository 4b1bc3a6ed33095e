#include "lamina/train/pass.h"

#include "lamina/arch/cost.h"
#include "lamina/data/objectives/objective_batches.h"

namespace lamina::train {

PassInput pass_input(const data::Batch& batch, int64_t begin, int64_t rows, const Device& device, uint64_t index) {
  const auto tensor = [&](const std::vector<int64_t>& ids, int64_t length) {
    const std::span<const int64_t> part(ids.data() + begin * length, static_cast<size_t>(rows * length));
    return Tensor::from(part, {rows, length}, device);
  };
  PassInput input{tensor(batch.ids, batch.length), tensor(batch.targets, batch.length), Tensor(), index, begin};
  if (!batch.document_starts.empty()) {
    input.document_starts =
        Tensor::from(batch.document_starts, {static_cast<int64_t>(batch.document_starts.size())}, device);
  }
  if (batch.source_length > 0) input.source = tensor(batch.source, batch.source_length);
  if (!batch.neighbours.empty()) {
    const auto [chunks, count, length] = batch.neighbour_shape;
    input.neighbours = tensor(batch.neighbours, chunks * count * length).reshape({rows, chunks, count, length});
  }
  return input;
}

SharedBatch shared_batch(const data::Batch& batch, const std::shared_ptr<comm::Communicator>& ranks) {
  LAMINA_CHECK(batch.length >= 2 * ranks->size(), "layout.cp: ", ranks->size(), " ranks share rows of ", batch.length,
               " tokens; give longer sequences or fewer ranks");
  const auto share = std::make_shared<ops::ContextShare>(ops::ContextShare{ranks, batch.length, batch.document_starts});
  data::Batch own{batch.rows, share->tokens(), {}, {}, {}};
  for (int64_t row = 0; row < batch.rows; ++row) {
    for (const ops::PositionRange& chunk : share->chunks()) {
      const auto copy = [&](const std::vector<int64_t>& from, std::vector<int64_t>& to) {
        const auto first = from.begin() + row * batch.length;
        to.insert(to.end(), first + chunk.begin, first + chunk.end);
      };
      copy(batch.ids, own.ids);
      copy(batch.targets, own.targets);
    }
  }
  return {std::move(own), share};
}

data::NeighbourSizes neighbour_sizes(const arch::ArchSpec& resolved) {
  const arch::Retrieval& retrieval = resolved.retrieval.value();
  return {retrieval.chunk, retrieval.neighbours, retrieval.length};
}

Tensor empty_neighbours(const Recipe& recipe, int64_t rows, const Device& device) {
  if (!recipe.architecture.retrieval || !recipe.data.neighbours) return {};
  const data::NeighbourSizes sizes = neighbour_sizes(recipe.architecture);
  return Tensor::empty({rows, recipe.length / sizes.chunk, sizes.count, sizes.length}, DType::i64, device);
}

PassLengths pass_lengths(const Recipe& recipe) {
  if (!recipe.architecture.encoder) return {0, recipe.length};
  if (!recipe.data.task && data::is_causal(recipe.objective)) return {recipe.length, recipe.length};
  if (!recipe.data.task) {
    const data::SourceLengths lengths = data::source_lengths(recipe.objective, recipe.length);
    return {lengths.source, lengths.target};
  }
  const std::optional<int64_t> source = data::task_source_length(*recipe.data.task, recipe.length);
  LAMINA_CHECK(source, "the task ", data::task_name(*recipe.data.task),
               " asks between its inputs, so it has no source for an encoder; use copy, reversal, selective_copy or "
               "sorting");
  return {*source, recipe.length - *source};
}

double training_flops_per_token(const Recipe& recipe) {
  if (!recipe.architecture.encoder) return arch::flops_per_token(recipe.architecture, recipe.length).training();
  const PassLengths lengths = pass_lengths(recipe);
  constexpr double kForwardAndBackward = 3;
  return kForwardAndBackward * arch::source_and_target_flops(recipe.architecture, lengths.source, lengths.ids) /
         static_cast<double>(recipe.length);
}

nn::StageOutput pass_output(nn::Model& model, Tape& tape, const Recipe& recipe, const PassInput& input,
                            const Tensor& states, int chunk) {
  nn::RunOptions run{.training = true,
                     .dropout = {recipe.dropout.embedding, recipe.dropout.attention, recipe.dropout.residual},
                     .seed = static_cast<uint64_t>(recipe.seed),
                     .step = input.index,
                     .first_row = input.first_row,
                     .checkpoint = recipe.checkpointing ? &tape : nullptr,
                     .recompute = recipe.layout.recompute == Recompute::selective ? &tape : nullptr,
                     .chunk = chunk};
  run.document_starts = input.document_starts;
  run.source = input.source;
  run.neighbours = input.neighbours;
  run.context = input.context;
  return model.stage_loss(input.ids, states, input.targets,
                          {.label_smoothing = recipe.label_smoothing, .z_loss = recipe.z_loss}, run);
}

Tensor pass_loss(nn::Model& model, Tape& tape, const Recipe& recipe, const PassInput& input) {
  return pass_output(model, tape, recipe, input).loss.total;
}

void run_passes(nn::Model& model, Tape& tape, const Recipe& recipe, int64_t count, const PassInputAt& input_at,
                const OnPassLoss& on_loss) {
  const double share = 1.0 / static_cast<double>(recipe.accumulation);
  tape.zero_grad();
  for (int64_t i = 0; i < count; ++i) {
    const Tensor loss = pass_loss(model, tape, recipe, input_at(i));
    if (!on_loss || on_loss(i, loss)) {
      tape.backward({loss}, {Tensor::full(loss.shape(), share, loss.dtype(), loss.device())});
    } else {
      tape.reset();
    }
  }
}

}  // namespace lamina::train
