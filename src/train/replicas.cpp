#include "lamina/train/replicas.h"

#include "lamina/train/divided_weights.h"
#include "lamina/train/parameter_groups.h"

namespace lamina::train {
namespace {

/// Which parameters must not be cut: Muon orthogonalises whole matrices.
std::vector<bool> whole_parameters(const NamedTensors& parameters, const Recipe& recipe) {
  const bool muon = std::holds_alternative<MuonChoice>(recipe.optimizer);
  std::vector<bool> whole;
  for (const NamedTensor& parameter : parameters) {
    whole.push_back(muon && parameter_kind(parameter.name, parameter.tensor) == ParameterKind::matrix);
  }
  return whole;
}

}  // namespace

ShardPlan zero_plan(const NamedTensors& parameters, const Recipe& recipe, int ranks) {
  std::vector<int64_t> layers;
  for (const NamedTensor& parameter : parameters) {
    if (recipe.layout.zero == 3) layers.push_back(layer_of(parameter.name));
  }
  return {parameters, whole_parameters(parameters, recipe), ranks, layers, recipe.layout.tp > 1};
}

Replicas::Replicas(Tape& tape, NamedTensors parameters, const Recipe& recipe, std::shared_ptr<comm::Communicator> ranks,
                   ShardedWeights* sharded, const DividedWeights* divided)
    : parameters_(std::move(parameters)),
      zero_(recipe.layout.zero),
      ranks_(std::move(ranks)),
      plan_(zero_plan(parameters_, recipe, ranks_->size())),
      divided_(divided) {
  ReducerOptions options{.ordered = recipe.layout.order == SumOrder::ordered,
                         .scatter = zero_ >= 2,
                         .bf16 = recipe.layout.reduce == ReduceType::bf16,
                         .overlaps_backward = divided == nullptr};
  if (sharded != nullptr) {
    options.before_ranks = [this, sharded](const std::vector<Tensor>& sums) {
      sharded->sum_gradients(parameters_, sums);
    };
  } else if (recipe.layout.cp > 1) {
    // Set only to delay the sums, because backward communicates.
    options.before_ranks = [](const std::vector<Tensor>& /*sums*/) {};
  }
  reducer_ = std::make_unique<GradientReducer>(tape, parameters_, plan_, *ranks_, std::move(options));
}

void Replicas::layer_complete(int64_t layer) {
  for (size_t i = parameters_.size(); i-- > 0;) {
    if (layer_of(parameters_[i].name) == layer) reducer_->ready(i);
  }
}

Tensor Replicas::piece(size_t parameter) const {
  if (divided_ != nullptr) return divided_->piece(parameters_[parameter].name);
  const Tensor whole = parameters_[parameter].tensor;
  const Piece own = plan_.piece_of(parameter, ranks_->rank());
  if (!divides_state() || own.count == whole.numel()) return whole;
  if (own.count == 0) return {};
  return whole.detach().reshape({whole.numel()}).slice(0, own.begin, own.count);
}

Tensor Replicas::gradient(size_t parameter) const {
  if (!is_defined(parameter)) return {};
  if (!divides_state()) return reducer_->gradient(parameter);
  return reducer_->piece_gradient(parameter).reshape(piece(parameter).shape());
}

Replicas::GradientPart Replicas::own_gradient(size_t parameter) const {
  if (!is_defined(parameter)) return {};
  if (!divides_gradients()) {
    const Tensor whole = reducer_->gradient(parameter);
    return {0, whole.reshape({whole.numel()})};
  }
  const Piece own = plan_.piece_of(parameter, ranks_->rank());
  if (own.count == 0) return {};
  return {own.begin, reducer_->piece_gradient(parameter)};
}

void Replicas::share_parameters() const {
  if (!divides_state() || divided_ != nullptr) return;
  for (const Bucket& bucket : plan_.buckets()) {
    const Tensor& first = parameters_[bucket.parameters[0]].tensor;
    const Tensor buffer = Tensor::empty({bucket.elements}, first.dtype(), first.device());
    int64_t own_begin = 0;
    const auto each = [&](const std::function<void(const Piece&, const Tensor& part, const Tensor& place)>& use) {
      int64_t at = 0;
      for (const Piece& piece : bucket.pieces) {
        const Tensor whole = parameters_[piece.parameter].tensor.detach();
        use(piece, whole.reshape({whole.numel()}).slice(0, piece.begin, piece.count), buffer.slice(0, at, piece.count));
        at += piece.count;
      }
    };
    const int rank = ranks_->rank();
    for (int r = 0; r < rank; ++r) own_begin += bucket.counts[static_cast<size_t>(r)];
    each([&](const Piece& piece, const Tensor& part, Tensor place) {
      if (piece.rank == rank) place.copy_(part);
    });
    ranks_->all_gather(buffer.slice(0, own_begin, bucket.counts[static_cast<size_t>(rank)]), buffer, bucket.counts,
                       {.label = "weights"});
    each([&](const Piece& piece, Tensor part, const Tensor& place) {
      if (piece.rank != rank) part.copy_(place);
    });
  }
}

Tensor Replicas::gather_pieces(size_t parameter, const Tensor& own, DType dtype, std::string_view label) const {
  const Tensor& like = parameters_[parameter].tensor;
  const Tensor whole = Tensor::zeros({like.numel()}, dtype, like.device());
  std::vector<int64_t> counts(static_cast<size_t>(ranks_->size()));
  for (const Piece& piece : plan_.pieces_of(parameter)) counts[static_cast<size_t>(piece.rank)] = piece.count;
  const int64_t count = counts[static_cast<size_t>(ranks_->rank())];
  ranks_->all_gather(count > 0 ? own.reshape({count}) : whole.slice(0, 0, 0), whole, counts, {.label = label});
  return whole.reshape(like.shape());
}

}  // namespace lamina::train
