#include "lamina/train/parallel_update.h"

#include <algorithm>
#include <cmath>

#include "lamina/ops/optim/grad_norm.h"
#include "lamina/train/parameter_groups.h"
#include "lamina/train/pass.h"

namespace lamina::train {
namespace {

/// Muon orthogonalises whole matrices.
std::vector<bool> whole_parameters(const NamedTensors& parameters, const Recipe& recipe) {
  const bool muon = std::holds_alternative<MuonChoice>(recipe.optimizer);
  std::vector<bool> whole;
  for (const NamedTensor& parameter : parameters) {
    whole.push_back(muon && parameter_kind(parameter.name, parameter.tensor) == ParameterKind::matrix);
  }
  return whole;
}

int64_t targets_in(const data::Batch& batch, RowRange rows) {
  const auto begin = batch.targets.begin() + rows.begin * batch.length;
  const auto end = batch.targets.begin() + rows.end * batch.length;
  return (end - begin) - std::count(begin, end, kIgnoreIndex);
}

Tensor rows_of(const std::vector<int64_t>& ids, const data::Batch& batch, RowRange rows, const Device& device) {
  const auto count = static_cast<size_t>((rows.end - rows.begin) * batch.length);
  const std::span<const int64_t> part(ids.data() + rows.begin * batch.length, count);
  return Tensor::from(part, {rows.end - rows.begin, batch.length}, device);
}

/// `name` without its last part: the parameter that a state entry belongs to.
std::string owner_of(const std::string& name) { return name.substr(0, name.find_last_of('.')); }

}  // namespace

ParallelUpdate::ParallelUpdate(nn::Model& model, Tape& tape, const Recipe& recipe,
                               std::shared_ptr<comm::Communicator> communicator)
    : model_(model),
      tape_(tape),
      recipe_(recipe),
      communicator_(std::move(communicator)),
      parameters_(distinct_parameters(model)),
      plan_(parameters_, whole_parameters(parameters_, recipe), communicator_->size()),
      micro_batches_(micro_batches(recipe.layout, recipe.batch, communicator_->rank())) {
  const bool scatter = recipe.layout.zero >= 2;
  const bool ordered = recipe.layout.order == SumOrder::ordered;
  reducer_ = std::make_unique<GradientReducer>(tape, parameters_, plan_, *communicator_,
                                               ReducerOptions{.ordered = ordered, .scatter = scatter});
}

size_t ParallelUpdate::index_of(const std::string& name) const {
  const auto found =
      std::find_if(parameters_.begin(), parameters_.end(), [&](const NamedTensor& p) { return p.name == name; });
  LAMINA_CHECK(found != parameters_.end(), "the model has no parameter ", name);
  return static_cast<size_t>(found - parameters_.begin());
}

/// What this rank updates of a parameter: itself, a flat slice, or nothing.
Tensor ParallelUpdate::piece(size_t parameter) const {
  const Tensor whole = parameters_[parameter].tensor;
  const Piece own = plan_.piece_of(parameter, communicator_->rank());
  if (!divides_state() || own.count == whole.numel()) return whole;
  if (own.count == 0) return {};
  return whole.detach().reshape({whole.numel()}).slice(0, own.begin, own.count);
}

std::unique_ptr<Optimizer> ParallelUpdate::make_optimizer() const {
  return train::make_optimizer(model_, recipe_,
                               [&](const NamedTensor& parameter) { return piece(index_of(parameter.name)); });
}

double ParallelUpdate::run_passes(int64_t step, const std::function<data::Batch(int64_t pass)>& batch_at) {
  const int64_t passes = recipe_.accumulation;
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < passes; ++i) batches.push_back(batch_at(step * passes + i));
  communicator_->set_update(step + 1);
  tape_.zero_grad();
  reducer_->start(static_cast<int64_t>(micro_batches_.size()));
  std::vector<double> losses;
  for (size_t m = 0; m < micro_batches_.size(); ++m) {
    const RowRange rows = micro_batches_[m];
    losses.push_back(0);
    for (int64_t i = 0; i < passes; ++i) {
      const data::Batch& batch = batches[static_cast<size_t>(i)];
      const int64_t all = std::max<int64_t>(targets_in(batch, {0, batch.rows}), 1);
      const double share = static_cast<double>(targets_in(batch, rows)) / static_cast<double>(all * passes);
      PassInput input{rows_of(batch.ids, batch, rows, model_.device()),
                      rows_of(batch.targets, batch, rows, model_.device()), Tensor(),
                      static_cast<uint64_t>(step * passes + i), rows.begin};
      const Tensor loss = pass_loss(model_, tape_, recipe_, input);
      losses.back() += share * loss.item();
      // A loss that is not finite is not skipped: all ranks must make the same calls.
      if (i + 1 == passes) reducer_->arm(static_cast<int64_t>(m));
      tape_.backward({loss}, {Tensor::full(loss.shape(), share, loss.dtype(), loss.device())});
      if (i + 1 == passes) reducer_->disarm();
    }
  }
  reducer_->finish();
  // Ranks report a loss per micro-batch, or their sum if they have different numbers of them.
  std::vector<double> report = losses;
  if (recipe_.layout.order != SumOrder::ordered) {
    report = {0};
    for (const double loss : losses) report[0] += loss;
  }
  const size_t own_losses = report.size();
  for (size_t i = 0; i < parameters_.size(); ++i) report.push_back(reducer_->was_defined(i) ? 1 : 0);
  const std::vector<double> all = comm::gather(*communicator_, report, "losses");
  double loss = 0;
  any_defined_.assign(parameters_.size(), false);
  for (size_t begin = 0; begin < all.size(); begin += report.size()) {
    for (size_t i = 0; i < own_losses; ++i) loss += all[begin + i];
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (all[begin + own_losses + i] != 0) any_defined_[i] = true;
    }
  }
  return loss;
}

std::vector<Tensor> ParallelUpdate::gradients(const Optimizer& optimizer) const {
  std::vector<Tensor> grads;
  for (const std::string& name : optimizer.names()) {
    const size_t i = index_of(name);
    if (!any_defined_.empty() && !any_defined_[i]) {
      grads.emplace_back();
    } else if (!divides_state()) {
      grads.push_back(reducer_->gradient(i));
    } else {
      grads.push_back(reducer_->piece_gradient(i).reshape(piece(i).shape()));
    }
  }
  return grads;
}

/// Squared norms of every kAlignment elements of every parameter. Their number and order do not depend on the ranks.
std::vector<double> ParallelUpdate::chunk_squares() const {
  constexpr int64_t kChunk = ShardPlan::kAlignment;
  const bool scattered = recipe_.layout.zero >= 2 && communicator_->size() > 1;
  std::vector<double> squares;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t elements = parameters_[i].tensor.numel();
    const auto first = static_cast<int64_t>(squares.size());
    squares.resize(squares.size() + static_cast<size_t>((elements + kChunk - 1) / kChunk));
    const Piece own = scattered ? plan_.piece_of(i, communicator_->rank()) : Piece{i, 0, 0, elements};
    if (own.count == 0 || (!any_defined_.empty() && !any_defined_[i])) continue;
    const Tensor gradient = scattered ? reducer_->piece_gradient(i) : reducer_->gradient(i).reshape({elements});
    for (int64_t begin = 0; begin < own.count; begin += kChunk) {
      const Tensor chunk = gradient.slice(0, begin, std::min(kChunk, own.count - begin));
      const double norm = ops::global_norm({chunk}).norm;
      squares[static_cast<size_t>(first + (own.begin + begin) / kChunk)] = norm * norm;
    }
  }
  return squares;
}

double ParallelUpdate::norm() const {
  std::vector<double> squares = chunk_squares();
  if (recipe_.layout.zero >= 2 && communicator_->size() > 1) {  // every chunk is computed on one rank, 0 on the others
    const Tensor all = Tensor::from(squares, {static_cast<int64_t>(squares.size())}, Device::cpu(1));
    communicator_->all_reduce(all, {.label = "norm"});
    squares = all.to_vector<double>();
  }
  double sum = 0;
  for (const double square : squares) sum += square;
  return std::sqrt(sum);
}

void ParallelUpdate::share_parameters() {
  if (!divides_state()) return;
  for (const Bucket& bucket : plan_.buckets()) {
    const Tensor& first = parameters_[bucket.parameters[0]].tensor;
    const Tensor buffer = Tensor::empty({bucket.elements}, first.dtype(), first.device());
    int64_t at = 0;
    int64_t own_begin = 0;
    const auto each = [&](const std::function<void(const Piece&, const Tensor& part, const Tensor& place)>& use) {
      at = 0;
      for (const Piece& piece : bucket.pieces) {
        const Tensor whole = parameters_[piece.parameter].tensor.detach();
        use(piece, whole.reshape({whole.numel()}).slice(0, piece.begin, piece.count), buffer.slice(0, at, piece.count));
        at += piece.count;
      }
    };
    const int rank = communicator_->rank();
    for (int r = 0; r < rank; ++r) own_begin += bucket.counts[static_cast<size_t>(r)];
    each([&](const Piece& piece, const Tensor& part, Tensor place) {
      if (piece.rank == rank) place.copy_(part);
    });
    communicator_->all_gather(buffer.slice(0, own_begin, bucket.counts[static_cast<size_t>(rank)]), buffer,
                              bucket.counts, {.label = "weights"});
    each([&](const Piece& piece, Tensor part, const Tensor& place) {
      if (piece.rank != rank) part.copy_(place);
    });
  }
}

NamedTensors ParallelUpdate::whole_state(const Optimizer& optimizer) const {
  const NamedTensors own = optimizer.state();
  if (!divides_state()) return own;
  // What a single device would hold, without memory.
  const nn::Model shapes(model_.spec(), Device::meta(), {.dtype = model_.dtype()});
  NamedTensors whole;
  for (const NamedTensor& entry : train::make_optimizer(shapes, recipe_)->state()) {
    const size_t parameter = index_of(owner_of(entry.name));
    const auto mine = std::find_if(own.begin(), own.end(), [&](const NamedTensor& o) { return o.name == entry.name; });
    const Tensor result = Tensor::zeros({entry.tensor.numel()}, entry.tensor.dtype(), model_.device());
    std::vector<int64_t> counts(static_cast<size_t>(communicator_->size()));
    const std::vector<Piece>& pieces = plan_.pieces_of(parameter);
    const bool is_count = entry.tensor.numel() == 1 && entry.tensor.dtype() == DType::i64;  // one per parameter
    for (const Piece& piece : pieces) counts[static_cast<size_t>(piece.rank)] = is_count ? 0 : piece.count;
    if (is_count) counts[static_cast<size_t>(pieces[0].rank)] = 1;
    const int64_t own_count = counts[static_cast<size_t>(communicator_->rank())];
    const Tensor given = own_count > 0 ? mine->tensor.reshape({own_count}) : result.slice(0, 0, 0);
    communicator_->all_gather(given, result, counts, {.label = "optimizer state"});
    if (communicator_->rank() == 0) whole.push_back({entry.name, result.reshape(entry.tensor.shape())});
  }
  return whole;
}

NamedTensors ParallelUpdate::own_state(const Optimizer& optimizer, const NamedTensors& whole) const {
  if (!divides_state()) return whole;
  NamedTensors own;
  for (const NamedTensor& entry : optimizer.state()) {
    const auto found = std::find_if(whole.begin(), whole.end(), [&](const auto& w) { return w.name == entry.name; });
    LAMINA_CHECK(found != whole.end(), "optimizer state: ", entry.name,
                 " is missing; load the state of the same model and optimizer");
    const size_t parameter = index_of(owner_of(entry.name));
    const Piece piece = plan_.piece_of(parameter, communicator_->rank());
    const Tensor& tensor = found->tensor;
    if (tensor.shape() == entry.tensor.shape()) {
      own.push_back(*found);
      continue;
    }
    LAMINA_CHECK(tensor.shape() == parameters_[parameter].tensor.shape(), "optimizer state: ", entry.name, " is ",
                 tensor.shape(), "; expected ", parameters_[parameter].tensor.shape());
    own.push_back({entry.name, tensor.reshape({tensor.numel()}).slice(0, piece.begin, piece.count)});
  }
  return own;
}

int64_t ParallelUpdate::most_rows() const {
  int64_t most = 0;
  for (const RowRange& rows : micro_batches_) most = std::max(most, rows.end - rows.begin);
  return most;
}

void ParallelUpdate::rehearse_sums() {
  reducer_->start(1);
  reducer_->arm(0);
  reducer_->disarm();
  reducer_->finish();
}

}  // namespace lamina::train
