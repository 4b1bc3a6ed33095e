#include "lamina/train/parallel_update.h"

#include <algorithm>
#include <cmath>

#include "lamina/ops/optim/grad_norm.h"
#include "lamina/train/parameter_groups.h"
#include "lamina/train/pipeline.h"

namespace lamina::train {
namespace {

int64_t targets_in(const data::Batch& batch, RowRange rows) {
  const auto begin = batch.targets.begin() + rows.begin * batch.length;
  const auto end = batch.targets.begin() + rows.end * batch.length;
  return (end - begin) - std::count(begin, end, kIgnoreIndex);
}

/// Whether a state entry is the number of updates, of which each parameter has one.
bool is_count(const Tensor& entry) { return entry.numel() == 1 && entry.dtype() == DType::i64; }

/// `name` without its last part: the parameter that a state entry belongs to.
std::string owner_of(const std::string& name) { return name.substr(0, name.find_last_of('.')); }

}  // namespace

/// One pass of one micro-batch, from its forward to its backward.
struct ParallelUpdate::Pass {
  PassInput input;
  int64_t micro_batch = 0;
  bool last_of_micro_batch = false;
  double target_share = 0;  ///< share of the update's targets, which weighs the cross entropy
  double token_share = 0;   ///< share of the update's tokens, which weighs auxiliary losses
  Tensor states = {};       ///< residual stream of the stage before
  nn::StageOutput output = {};
  TapeRecords records = {};
  double loss = 0;  ///< this stage's part of the loss, weighted
};

ParallelUpdate::ParallelUpdate(nn::Model& model, Tape& tape, const Recipe& recipe, const RankGroups& groups)
    : model_(model),
      tape_(tape),
      recipe_(recipe),
      groups_(groups),
      sharded_(groups.model ? std::make_unique<ShardedWeights>(model, groups.model) : nullptr),
      micro_batches_(micro_batches(recipe.layout, recipe.batch, groups.data->rank())) {
  NamedTensors parts[2];  // what data-parallel ranks hold, and experts that they divide
  for (const NamedTensor& parameter : distinct_parameters(model)) {
    const size_t experts = sharded_ && sharded_->by_experts(parameter.name) ? 1 : 0;
    places_[parameter.name] = {experts, parts[experts].size()};
    parts[experts].push_back(parameter);
  }
  replicas_.push_back(std::make_unique<Replicas>(tape, parts[0], recipe, groups.data, sharded_.get()));
  if (parts[1].empty()) return;
  replicas_.push_back(std::make_unique<Replicas>(tape, parts[1], recipe, groups.same_experts, sharded_.get()));
}

EvaluationRanks ParallelUpdate::evaluation_ranks() const {
  return {*groups_.data, groups_.stages.get(), groups_.experts != nullptr};
}

ParallelUpdate::Place ParallelUpdate::place_of(const std::string& name) const {
  const auto found = places_.find(name);
  LAMINA_CHECK(found != places_.end(), "the model has no parameter ", name);
  return found->second;
}

std::unique_ptr<Optimizer> ParallelUpdate::make_optimizer() const {
  return train::make_optimizer(model_, recipe_, [&](const NamedTensor& parameter) {
    const Place place = place_of(parameter.name);
    return replicas_of(place).piece(place.parameter);
  });
}

void ParallelUpdate::run(std::vector<Pass>& passes) {
  const auto at = [&](int64_t pass) -> Pass& { return passes[static_cast<size_t>(pass)]; };
  StagePasses stage;
  stage.count = static_cast<int64_t>(passes.size());
  stage.states = [&](int64_t pass) {
    const Tensor& ids = at(pass).input.ids;
    return Tensor::empty(model_.states_shape(ids.dim(0), ids.dim(1)), model_.dtype(), model_.device());
  };
  stage.forward = [&](int64_t index, const Tensor& states) {
    Pass& pass = at(index);
    pass.states = states;
    if (states.defined()) tape_.watch(pass.states);
    pass.output = pass_output(model_, tape_, recipe_, pass.input, pass.states);
    const nn::ModelLoss& loss = pass.output.loss;
    if (model_.device().kind() != DeviceKind::meta) {
      if (loss.cross_entropy.defined()) pass.loss += pass.target_share * loss.cross_entropy.item();
      for (const Tensor& more : loss.auxiliary) pass.loss += pass.token_share * more.item();
    }
    pass.records = tape_.set_aside();
    return pass.output.states;
  };
  stage.backward = [&](int64_t index, const Tensor& gradient) {
    Pass& pass = at(index);
    std::vector<Tensor> outputs;
    std::vector<Tensor> grads;
    const auto add = [&](const Tensor& output, double share) {
      outputs.push_back(output);
      grads.push_back(Tensor::full(output.shape(), share, output.dtype(), output.device()));
    };
    const nn::ModelLoss& loss = pass.output.loss;
    if (loss.cross_entropy.defined()) add(loss.cross_entropy, pass.target_share);
    for (const Tensor& more : loss.auxiliary) add(more, pass.token_share);
    if (gradient.defined()) {
      outputs.push_back(pass.output.states);
      grads.push_back(gradient);
    }
    tape_.resume(std::move(pass.records));
    // A loss that is not finite is not skipped: all ranks must make the same calls.
    for (const auto& replicas : replicas_) {
      if (pass.last_of_micro_batch) replicas->reducer().arm(pass.micro_batch);
    }
    tape_.backward(outputs, grads);
    for (const auto& replicas : replicas_) {
      if (pass.last_of_micro_batch) replicas->reducer().disarm();
    }
    pass.output = {};
    Tensor back;
    if (pass.states.defined()) {
      back = tape_.grad(pass.states);
      if (!back.defined()) back = Tensor::zeros(pass.states.shape(), pass.states.dtype(), pass.states.device());
      pass.states = Tensor();
    }
    return back;
  };
  run_one_forward_one_backward(groups_.stages.get(), stage);
}

double ParallelUpdate::run_passes(int64_t step, const std::function<data::Batch(int64_t pass)>& batch_at) {
  const int64_t accumulated = recipe_.accumulation;
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < accumulated; ++i) batches.push_back(batch_at(step * accumulated + i));
  groups_.all->set_update(step + 1);
  tape_.zero_grad();
  const auto micro = static_cast<int64_t>(micro_batches_.size());
  for (const auto& replicas : replicas_) replicas->reducer().start(micro);
  std::vector<Pass> passes;
  for (int64_t m = 0; m < micro; ++m) {
    const RowRange rows = micro_batches_[static_cast<size_t>(m)];
    for (int64_t i = 0; i < accumulated; ++i) {
      const data::Batch& batch = batches[static_cast<size_t>(i)];
      const auto share = [&](int64_t part, int64_t all) {
        return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(all, 1) * accumulated);
      };
      passes.push_back({.input = pass_input(batch, rows.begin, rows.end - rows.begin, model_.device(),
                                            static_cast<uint64_t>(step * accumulated + i)),
                        .micro_batch = m,
                        .last_of_micro_batch = i + 1 == accumulated,
                        .target_share = share(targets_in(batch, rows), targets_in(batch, {0, batch.rows})),
                        .token_share = share(rows.end - rows.begin, batch.rows)});
    }
  }
  run(passes);
  for (const auto& replicas : replicas_) replicas->reducer().finish();
  std::vector<double> losses(static_cast<size_t>(micro));
  for (const Pass& pass : passes) losses[static_cast<size_t>(pass.micro_batch)] += pass.loss;
  return sum_losses(losses);
}

double ParallelUpdate::sum_losses(const std::vector<double>& losses) {
  // Ranks report a loss per micro-batch, or their sum if they have different numbers of them.
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

/// Squared norms of every kAlignment elements of every parameter. Their number and order do not depend on the ranks.
std::vector<double> ParallelUpdate::chunk_squares() const {
  constexpr int64_t kChunk = ShardPlan::kAlignment;
  const Replicas& replicas = *replicas_[0];
  std::vector<double> squares;
  for (size_t i = 0; i < replicas.parameters().size(); ++i) {
    const int64_t elements = replicas.parameters()[i].tensor.numel();
    const auto first = static_cast<int64_t>(squares.size());
    squares.resize(squares.size() + static_cast<size_t>((elements + kChunk - 1) / kChunk));
    const Replicas::GradientPart own = replicas.own_gradient(i);
    const int64_t count = own.values.defined() ? own.values.numel() : 0;
    for (int64_t begin = 0; begin < count; begin += kChunk) {
      const double norm = ops::global_norm({own.values.slice(0, begin, std::min(kChunk, count - begin))}).norm;
      squares[static_cast<size_t>(first + (own.begin + begin) / kChunk)] = norm * norm;
    }
  }
  return squares;
}

double ParallelUpdate::counted_squares() const {
  double squares = 0;
  for (const auto& replicas : replicas_) {
    // Of ranks with the same gradient the first counts it.
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
  if (replicas_[0]->divides_gradients()) {  // every chunk is computed on one rank, 0 on the others
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

NamedTensors ParallelUpdate::whole_state(const Optimizer& optimizer) const {
  const NamedTensors own = undivided_state(optimizer);
  if (!sharded_ || groups_.data->rank() >= recipe_.layout.ep) return own;
  NamedTensors whole;
  for (const NamedTensor& entry : train::make_optimizer(sharded_->whole_model(), recipe_)->state()) {
    const std::string parameter = owner_of(entry.name);
    if (!is_count(entry.tensor)) {
      whole.push_back({entry.name, sharded_->gather_from(own, entry.name, parameter, entry.tensor.dtype())});
      continue;
    }
    const auto mine = std::find_if(own.begin(), own.end(), [&](const NamedTensor& o) { return o.name == entry.name; });
    const Tensor count = mine == own.end() ? Tensor::zeros({1}, DType::i64, model_.device()) : mine->tensor.clone();
    sharded_->ranks().broadcast(count, sharded_->first_holder(parameter), {.label = "checkpoint"});
    whole.push_back({entry.name, count});
  }
  return whole;
}

NamedTensors ParallelUpdate::undivided_state(const Optimizer& optimizer) const {
  const NamedTensors own = optimizer.state();
  if (recipe_.layout.zero == 0) return own;
  // What this rank would hold without ZeRO, without memory.
  const nn::Model shapes(model_.spec(), Device::meta(), model_.options());
  NamedTensors whole;
  for (const NamedTensor& entry : train::make_optimizer(shapes, recipe_)->state()) {
    const Place place = place_of(owner_of(entry.name));
    comm::Communicator& ranks = replicas_of(place).ranks();
    const auto mine = std::find_if(own.begin(), own.end(), [&](const NamedTensor& o) { return o.name == entry.name; });
    if (!replicas_of(place).divides_state()) {
      whole.push_back(*mine);
      continue;
    }
    const Tensor result = Tensor::zeros({entry.tensor.numel()}, entry.tensor.dtype(), model_.device());
    std::vector<int64_t> counts(static_cast<size_t>(ranks.size()));
    const std::vector<Piece>& pieces = replicas_of(place).plan().pieces_of(place.parameter);
    const bool one = is_count(entry.tensor);
    for (const Piece& piece : pieces) counts[static_cast<size_t>(piece.rank)] = one ? 0 : piece.count;
    if (one) counts[static_cast<size_t>(pieces[0].rank)] = 1;
    const int64_t own_count = counts[static_cast<size_t>(ranks.rank())];
    const Tensor given = own_count > 0 ? mine->tensor.reshape({own_count}) : result.slice(0, 0, 0);
    ranks.all_gather(given, result, counts, {.label = "optimizer state"});
    if (ranks.rank() == 0) whole.push_back({entry.name, result.reshape(entry.tensor.shape())});
  }
  return whole;
}

int ParallelUpdate::model_copies() const { return groups_.data->size() / static_cast<int>(recipe_.layout.ep); }

int ParallelUpdate::model_copy() const { return groups_.data->rank() / static_cast<int>(recipe_.layout.ep); }

HeldPieces ParallelUpdate::held(const NamedTensors& tensors, const std::string& prefix) const {
  const std::vector<int> writers = deal_tensors(tensors, model_copies());
  HeldPieces pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const HeldPiece own = whole_piece({prefix + tensors[i].name, tensors[i].tensor});
    const HeldPieces in_whole =
        sharded_ ? sharded_->held(tensors[i].name, own.tensor, {own.offset, own.part}) : HeldPieces{own};
    for (HeldPiece piece : in_whole) {
      piece.writes = piece.writes && writers[i] == model_copy();
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

HeldPieces ParallelUpdate::held_state(const NamedTensors& state, const std::string& prefix) const {
  std::vector<std::vector<int>> writers;  // by index in replicas_ and parameter
  for (const auto& replicas : replicas_) writers.push_back(deal_tensors(replicas->parameters(), model_copies()));
  HeldPieces pieces;
  for (const NamedTensor& entry : state) {
    const std::string parameter = owner_of(entry.name);
    const Place place = place_of(parameter);
    const Replicas& replicas = replicas_of(place);
    const ShardPlan& plan = replicas.plan();
    const int rank = replicas.ranks().rank();
    // ZeRO divides the state among ranks with different tokens, so each of them writes its own pieces.
    const bool divided = replicas.divides_state();
    const auto copies = divided ? ShardedWeights::Copies::same_tokens : ShardedWeights::Copies::all;
    const bool own_turn = divided || writers[place.replicas][place.parameter] == model_copy();
    const HeldPiece own = whole_piece({prefix + entry.name, entry.tensor});
    if (is_count(entry.tensor)) {
      const bool first_piece = !divided || plan.pieces_of(place.parameter)[0].rank == rank;
      pieces.push_back(own);
      pieces.back().writes = own_turn && first_piece && (!sharded_ || sharded_->has_first_element(parameter, copies));
      continue;
    }
    const Shape& shape = replicas.parameters()[place.parameter].tensor.shape();
    std::vector<TensorBox> boxes{{own.offset, own.part}};
    if (divided) {
      boxes = boxes_of_range(shape, plan.piece_of(place.parameter, rank).begin, own.part.reshape({-1}));
    }
    for (const TensorBox& box : boxes) {
      const HeldPieces in_whole = sharded_ ? sharded_->held(parameter, own.tensor, box, copies)
                                           : HeldPieces{{own.tensor, shape, box.offset, box.part}};
      for (HeldPiece piece : in_whole) {
        piece.writes = piece.writes && own_turn;
        pieces.push_back(std::move(piece));
      }
    }
  }
  return pieces;
}

int64_t ParallelUpdate::most_rows() const {
  // Expert-parallel ranks rehearse passes of the same size.
  int64_t most = 0;
  for (int rank = 0; rank < groups_.data->size(); ++rank) {
    if (rank != groups_.data->rank() && !groups_.experts) continue;
    for (const RowRange& rows : micro_batches(recipe_.layout, recipe_.batch, rank)) {
      most = std::max(most, rows.end - rows.begin);
    }
  }
  return most;
}

int64_t ParallelUpdate::rehearse(const std::function<PassInput(int64_t rows)>& input) {
  // Two passes, or as many as the pipeline has stages, show the peak memory of any number.
  const auto all = static_cast<int64_t>(micro_batches_.size()) * recipe_.accumulation;
  const int64_t count = std::min<int64_t>(all, std::max(2, model_.stage().count));
  for (const auto& replicas : replicas_) replicas->reducer().start(1);
  std::vector<Pass> passes;
  for (int64_t i = 0; i < count; ++i) {
    passes.push_back({.input = input(most_rows()), .last_of_micro_batch = i + 1 == count});
  }
  run(passes);
  const int64_t live = model_.device().allocator().counters().live;
  for (const auto& replicas : replicas_) replicas->reducer().finish();
  return live;
}

}  // namespace lamina::train
