#include "lamina/train/parallel_update.h"

#include <algorithm>
#include <cmath>

#include "lamina/ops/optim/grad_norm.h"
#include "lamina/train/interleaved.h"
#include "lamina/train/parameter_groups.h"

namespace lamina::train {
namespace {

int64_t targets_in(const data::Batch& batch, RowRange rows) {
  const auto begin = batch.targets.begin() + rows.begin * batch.length;
  const auto end = batch.targets.begin() + rows.end * batch.length;
  return (end - begin) - std::count(begin, end, kIgnoreIndex);
}

}  // namespace

/// One pass of one micro-batch, from its forward to its backward.
struct ParallelUpdate::Pass {
  PassInput input;
  int64_t micro_batch = 0;
  int64_t part = 0;  ///< index of the group of passes whose summed gradient goes to the reducer
  bool last_of_part = false;
  double target_share = 0;  ///< share of the update's targets; weight of the cross entropy
  double token_share = 0;   ///< share of the update's tokens; weight of the auxiliary losses
  /// State of a chunk between its forward and its backward.
  struct Chunk {
    Tensor states;  ///< residual stream at the chunk's input
    nn::StageOutput output;
    TapeRecords records;
  };
  std::vector<Chunk> chunks = {};
  double loss = 0;  ///< weighted loss of the micro-batch, as far as this stage computes it
};

ParallelUpdate::ParallelUpdate(nn::Model& model, Tape& tape, const Recipe& recipe, const RankGroups& groups,
                               std::shared_ptr<DividedWeights> divided)
    : model_(model),
      tape_(tape),
      recipe_(recipe),
      groups_(groups),
      divided_(std::move(divided)),
      sharded_(groups.model ? std::make_unique<ShardedWeights>(model, groups.model) : nullptr),
      micro_batches_(micro_batches(recipe.layout, rows_per_batch(recipe), groups.batch_part())) {
  NamedTensors parts[2];  // parameters that data-parallel ranks share, and experts that they divide
  for (const NamedTensor& parameter : distinct_parameters(model)) {
    const size_t experts = sharded_ && sharded_->by_experts(parameter.name) ? 1 : 0;
    places_[parameter.name] = {experts, parts[experts].size()};
    parts[experts].push_back(parameter);
  }
  const auto add = [&](const NamedTensors& parameters, const std::shared_ptr<comm::Communicator>& ranks) {
    replicas_.push_back(std::make_unique<Replicas>(tape, parameters, recipe, ranks, sharded_.get(), divided_.get()));
  };
  add(parts[0], groups.data);
  if (!parts[1].empty()) add(parts[1], groups.same_experts);
  if (model.stage().chunks > 1 && recipe.layout.order == SumOrder::ordered) {
    for (const auto& replicas : replicas_) chunk_gradients_.emplace_back(tape, replicas->parameters(), model);
  }
  if (!divided_) return;
  divided_->attach(tape, [this](int64_t layer) {
    for (const auto& replicas : replicas_) replicas->layer_complete(layer);
  });
}

EvaluationRanks ParallelUpdate::evaluation_ranks() const {
  return {*groups_.data, groups_.stages.get(), groups_.experts != nullptr || divided_ != nullptr};
}

ParallelUpdate::Place ParallelUpdate::place_of(const std::string& name) const {
  const auto found = places_.find(name);
  LAMINA_CHECK(found != places_.end(), "the model has no parameter ", name);
  return found->second;
}

NamedTensors ParallelUpdate::kept_parameters() const {
  NamedTensors kept;
  for (const NamedTensor& parameter : distinct_parameters(model_)) {
    const Tensor own = divided_ ? divided_->piece(parameter.name) : parameter.tensor;
    if (own.defined()) kept.push_back({parameter.name, own});
  }
  return kept;
}

Tensor ParallelUpdate::undivided(const std::string& parameter, const Tensor& own, DType dtype) const {
  const Place place = place_of(parameter);
  if (!divided_ || !divided_->divides(parameter)) return own;
  return replicas_of(place).gather_pieces(place.parameter, own, dtype, "checkpoint");
}

std::unique_ptr<Optimizer> ParallelUpdate::make_optimizer() const {
  std::unique_ptr<Optimizer> optimizer = train::make_optimizer(model_, recipe_, [&](const NamedTensor& parameter) {
    const Place place = place_of(parameter.name);
    return replicas_of(place).piece(place.parameter);
  });
  auto* muon = dynamic_cast<Muon*>(optimizer.get());
  if (muon == nullptr || !groups_.tensor) return optimizer;
  muon->set_divided(
      {.divides = [this](const std::string& name) { return sharded_->divided_by_tensor(name); },
       .gather = [this](const std::string& name,
                        const Tensor& own) { return sharded_->gather_from_peers(name, own, groups_.tensor->ranks()); },
       .own_part = [this](const std::string& name,
                          const Tensor& whole) { return sharded_->own_part_for_peers(name, whole); },
       .parts = sharded_->whole_model().packed_rows()});
  return optimizer;
}

void ParallelUpdate::run(std::vector<Pass>& passes) {
  const auto at = [&](int64_t pass) -> Pass& { return passes[static_cast<size_t>(pass)]; };
  StagePasses stage;
  stage.count = static_cast<int64_t>(passes.size());
  stage.states = [&](int64_t pass) {
    const Tensor& ids = at(pass).input.ids;
    return Tensor::empty(model_.states_shape(ids.dim(0), ids.dim(1)), model_.dtype(), model_.device());
  };
  stage.forward = [&](const StagePass& now, const Tensor& states) {
    Pass& pass = at(now.pass);
    pass.chunks.resize(static_cast<size_t>(model_.stage().chunks));
    Pass::Chunk& chunk = pass.chunks[static_cast<size_t>(now.chunk)];
    chunk.states = states;
    if (states.defined()) tape_.watch(chunk.states);
    chunk.output = pass_output(model_, tape_, recipe_, pass.input, chunk.states, now.chunk);
    const nn::ModelLoss& loss = chunk.output.loss;
    if (model_.device().kind() != DeviceKind::meta) {
      if (loss.cross_entropy.defined()) pass.loss += pass.target_share * loss.cross_entropy.item();
      for (const Tensor& more : loss.auxiliary) pass.loss += pass.token_share * more.item();
    }
    chunk.records = tape_.set_aside();
    return chunk.output.states;
  };
  stage.backward = [&](const StagePass& now, const Tensor& gradient) {
    Pass& pass = at(now.pass);
    Pass::Chunk& chunk = pass.chunks[static_cast<size_t>(now.chunk)];
    std::vector<Tensor> outputs;
    std::vector<Tensor> grads;
    const auto add = [&](const Tensor& output, double share) {
      outputs.push_back(output);
      grads.push_back(Tensor::full(output.shape(), share, output.dtype(), output.device()));
    };
    const nn::ModelLoss& loss = chunk.output.loss;
    if (loss.cross_entropy.defined()) add(loss.cross_entropy, pass.target_share);
    for (const Tensor& more : loss.auxiliary) add(more, pass.token_share);
    if (gradient.defined()) {
      outputs.push_back(chunk.output.states);
      grads.push_back(gradient);
    }
    tape_.resume(std::move(chunk.records));
    run_backward(pass, now.chunk, outputs, grads);
    Tensor back;
    if (chunk.states.defined()) {
      back = tape_.grad(chunk.states);
      if (!back.defined()) back = Tensor::zeros(chunk.states.shape(), chunk.states.dtype(), chunk.states.device());
    }
    chunk = {};
    return back;
  };
  if (model_.stage().chunks > 1) return run_interleaved(*groups_.stages, model_.stage().chunks, stage);
  run_one_forward_one_backward(groups_.stages.get(), stage);
}

void ParallelUpdate::run_backward(const Pass& pass, int chunk, const std::vector<Tensor>& outputs,
                                  const std::vector<Tensor>& grads) {
  const bool completes = pass.last_of_part && (sums_chunks() || chunk == 0);  // backward runs the chunks in reverse
  for (ChunkGradients& gradients : chunk_gradients_) gradients.restore(pass.part);
  for (size_t i = 0; completes && i < replicas_.size(); ++i) {
    GradientReducer& reducer = replicas_[i]->reducer();
    sums_chunks() ? reducer.arm(pass.part, chunk_gradients_[i].completed_by(chunk)) : reducer.arm(pass.part);
  }
  // Even a loss that is not finite goes through backward, because all ranks must make the same calls.
  tape_.backward(outputs, grads);
  for (const auto& replicas : replicas_) {
    if (completes) replicas->reducer().disarm();
  }
  for (ChunkGradients& gradients : chunk_gradients_) {
    if (!completes || chunk > 0) gradients.keep(pass.part);
  }
}

double ParallelUpdate::run_passes(int64_t step, const std::function<data::Batch(int64_t pass)>& batch_at) {
  const int64_t accumulated = recipe_.accumulation;
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < accumulated; ++i) batches.push_back(batch_at(step * accumulated + i));
  std::vector<SharedBatch> shared;  // with context parallelism: this rank's positions
  for (const data::Batch& batch : batches) {
    if (groups_.context) shared.push_back(shared_batch(batch, groups_.context));
  }
  groups_.all->set_update(step + 1);
  tape_.zero_grad();
  const auto micro = static_cast<int64_t>(micro_batches_.size());
  // `together` is the number of passes whose summed gradient goes to the reducer. Normally that is one micro-batch.
  // ZeRO-3 with unordered sums uses single passes, because it must not keep whole gradients. An interleaved stage with
  // unordered sums uses all passes, because it runs chunks of several passes in between.
  int64_t together = divided_ && recipe_.layout.order != SumOrder::ordered ? 1 : accumulated;
  if (model_.stage().chunks > 1 && !sums_chunks()) together = micro * accumulated;
  for (const auto& replicas : replicas_) replicas->reducer().start(micro * accumulated / together);
  const DividedWeights::Use weights(divided_.get());
  std::vector<Pass> passes;
  for (int64_t m = 0; m < micro; ++m) {
    const RowRange rows = micro_batches_[static_cast<size_t>(m)];
    for (int64_t i = 0; i < accumulated; ++i) {
      const data::Batch& batch = batches[static_cast<size_t>(i)];
      const data::Batch& own = groups_.context ? shared[static_cast<size_t>(i)].batch : batch;
      const auto share = [&](int64_t part, int64_t all) {
        return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(all, 1) * accumulated);
      };
      passes.push_back({.input = pass_input(own, rows.begin, rows.end - rows.begin, model_.device(),
                                            static_cast<uint64_t>(step * accumulated + i)),
                        .micro_batch = m,
                        .part = (m * accumulated + i) / together,
                        .last_of_part = (m * accumulated + i + 1) % together == 0,
                        .target_share = share(targets_in(own, rows), targets_in(batch, {0, batch.rows})),
                        .token_share = share((rows.end - rows.begin) * own.length, batch.rows * batch.length)});
      if (groups_.context) passes.back().input.context = shared[static_cast<size_t>(i)].context;
    }
  }
  run(passes);
  for (const auto& replicas : replicas_) replicas->reducer().finish();
  std::vector<double> losses(static_cast<size_t>(micro));
  for (const Pass& pass : passes) losses[static_cast<size_t>(pass.micro_batch)] += pass.loss;
  return sum_losses(losses);
}

double ParallelUpdate::sum_losses(const std::vector<double>& losses) {
  // For an ordered run, ranks report a loss per micro-batch. Otherwise they report the sum, because their numbers of
  // micro-batches may differ.
  std::vector<double> report = losses;
  if (recipe_.layout.order != SumOrder::ordered) {
    report = {0};
    for (const double loss : losses) report[0] += loss;
  }
  const size_t own_losses = report.size();
  if (groups_.stages) {
    const Tensor sum = Tensor::from(report, {static_cast<int64_t>(own_losses)}, Device::cpu(1));
    groups_.stages->all_reduce(sum, {.label = "losses of stages"});
    report = sum.to_vector<double>();
  }
  for (const auto& replicas : replicas_) {
    for (size_t i = 0; i < replicas->parameters().size(); ++i) {
      report.push_back(replicas->reducer().was_defined(i) ? 1 : 0);
    }
  }
  const std::vector<double> all = comm::gather(*groups_.data, report, "losses");
  double loss = 0;
  for (size_t begin = 0; begin < all.size(); begin += report.size()) {
    for (size_t i = 0; i < own_losses; ++i) loss += all[begin + i];
  }
  size_t first = own_losses;
  for (const auto& replicas : replicas_) {
    std::vector<bool> defined(replicas->parameters().size());
    for (size_t begin = first; begin < all.size(); begin += report.size()) {
      for (size_t i = 0; i < defined.size(); ++i) defined[i] = defined[i] || all[begin + i] != 0;
    }
    first += defined.size();
    replicas->set_defined(std::move(defined));
  }
  return loss;
}

std::vector<Tensor> ParallelUpdate::gradients(const Optimizer& optimizer) const {
  std::vector<Tensor> grads;
  for (const std::string& name : optimizer.names()) {
    const Place place = place_of(name);
    grads.push_back(replicas_of(place).gradient(place.parameter));
  }
  return grads;
}

/// Squared norm of every block of kAlignment gradient elements. The number and order of blocks do not depend on the
/// ranks.
std::vector<double> ParallelUpdate::chunk_squares() const {
  constexpr int64_t kChunk = ShardPlan::kAlignment;
  const Replicas& replicas = *replicas_[0];
  std::vector<Tensor> gradients;
  std::vector<int64_t> places;  // of each own block in the result
  int64_t blocks = 0;
  for (size_t i = 0; i < replicas.parameters().size(); ++i) {
    const Replicas::GradientPart own = replicas.own_gradient(i);
    const int64_t count = own.values.defined() ? own.values.numel() : 0;
    for (int64_t begin = 0; begin < count; begin += kChunk) places.push_back(blocks + (own.begin + begin) / kChunk);
    blocks += (replicas.parameters()[i].tensor.numel() + kChunk - 1) / kChunk;
    gradients.push_back(own.values);
  }
  const std::vector<double> own = ops::chunk_squares(gradients, kChunk);
  std::vector<double> squares(static_cast<size_t>(blocks));
  for (size_t i = 0; i < own.size(); ++i) squares[static_cast<size_t>(places[i])] = own[i];
  return squares;
}

double ParallelUpdate::counted_squares() const {
  double squares = 0;
  for (const auto& replicas : replicas_) {
    // If several ranks hold the same gradient, only the first one counts it.
    if (!replicas->divides_gradients() && replicas->ranks().rank() != 0) continue;
    for (size_t i = 0; i < replicas->parameters().size(); ++i) {
      const Replicas::GradientPart own = replicas->own_gradient(i);
      if (!own.values.defined()) continue;
      for (const ShardedWeights::Range& range : sharded_->counted_elements(replicas->parameters()[i].name)) {
        const int64_t begin = std::max(range.begin, own.begin);
        const int64_t end = std::min(range.end, own.begin + own.values.numel());
        if (begin >= end) continue;
        const double norm = ops::global_norm({own.values.slice(0, begin - own.begin, end - begin)}).norm;
        squares += norm * norm;
      }
    }
  }
  return squares;
}

double ParallelUpdate::norm() const {
  if (sharded_) {
    const Tensor sum = Tensor::full({1}, counted_squares(), DType::f64, Device::cpu(1));
    groups_.all->all_reduce(sum, {.label = "norm of shards"});
    return std::sqrt(sum.item());
  }
  std::vector<double> squares = chunk_squares();
  if (replicas_[0]->divides_gradients()) {  // each block was computed on one rank and is 0 on the others
    const Tensor all = Tensor::from(squares, {static_cast<int64_t>(squares.size())}, Device::cpu(1));
    groups_.data->all_reduce(all, {.label = "norm"});
    squares = all.to_vector<double>();
  }
  double sum = 0;
  for (const double square : squares) sum += square;
  return std::sqrt(sum);
}

void ParallelUpdate::share_parameters() {
  for (const auto& replicas : replicas_) replicas->share_parameters();
}

int64_t ParallelUpdate::most_rows() const {
  // Expert-parallel ranks must simulate passes of equal size.
  int64_t most = 0;
  for (int part = 0; part < recipe_.layout.dp; ++part) {
    if (part != groups_.batch_part() && !groups_.experts) continue;
    for (const RowRange& rows : micro_batches(recipe_.layout, recipe_.batch, part)) {
      most = std::max(most, rows.end - rows.begin);
    }
  }
  return most;
}

int64_t ParallelUpdate::rehearse(const std::function<PassInput(int64_t rows)>& input) {
  // Two passes, or as many as there are pipeline stages, show the peak memory of any number of passes.
  const auto all = static_cast<int64_t>(micro_batches_.size()) * recipe_.accumulation;
  const int64_t count = std::min<int64_t>(all, std::max(2, model_.stage().count * std::min(model_.stage().chunks, 2)));
  for (const auto& replicas : replicas_) replicas->reducer().start(1);
  std::vector<Pass> passes;
  for (int64_t i = 0; i < count; ++i) {
    passes.push_back({.input = input(most_rows()), .last_of_part = i + 1 == count});
    if (!groups_.context) continue;
    PassInput& whole = passes.back().input;
    const ops::ContextShare share{groups_.context, whole.ids.dim(1)};
    for (Tensor* ids : {&whole.ids, &whole.targets}) *ids = ids->slice(1, 0, share.tokens()).contiguous();
    whole.context = std::make_shared<const ops::ContextShare>(share);
  }
  const DividedWeights::Use weights(divided_.get());
  run(passes);
  const int64_t live = model_.device().allocator().counters().live;
  for (const auto& replicas : replicas_) replicas->reducer().finish();
  return live;
}

}  // namespace lamina::train
