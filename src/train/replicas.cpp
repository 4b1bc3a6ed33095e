#include "lamina/train/replicas.h"

#include "lamina/train/parameter_groups.h"

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

}  // namespace

Replicas::Replicas(Tape& tape, NamedTensors parameters, const Recipe& recipe, std::shared_ptr<comm::Communicator> ranks,
                   ShardedWeights* sharded)
    : parameters_(std::move(parameters)),
      zero_(recipe.layout.zero),
      ranks_(std::move(ranks)),
      plan_(parameters_, whole_parameters(parameters_, recipe), ranks_->size()) {
  ReducerOptions options{.ordered = recipe.layout.order == SumOrder::ordered, .scatter = zero_ >= 2};
  if (sharded != nullptr) {
    options.before_ranks = [this, sharded](const std::vector<Tensor>& sums) {
      sharded->sum_gradients(parameters_, sums);
    };
  }
  reducer_ = std::make_unique<GradientReducer>(tape, parameters_, plan_, *ranks_, std::move(options));
}

Tensor Replicas::piece(size_t parameter) const {
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
  if (!divides_state()) return;
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

}  // namespace lamina::train
