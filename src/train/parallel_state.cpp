// Saving and loading the state of a ParallelUpdate: as the tensors of a single-device run, and as pieces of them.
#include <algorithm>

#include "lamina/train/parallel_update.h"
#include "lamina/train/parameter_groups.h"

namespace lamina::train {
namespace {

/// Whether a state entry is a parameter's update count.
bool is_count(const Tensor& entry) { return entry.numel() == 1 && entry.dtype() == DType::i64; }

/// The parameter that a state entry belongs to: `name` without its last part.
std::string owner_of(const std::string& name) { return name.substr(0, name.find_last_of('.')); }

}  // namespace

NamedTensors ParallelUpdate::whole_state(const Optimizer& optimizer) const {
  const NamedTensors own = undivided_state(optimizer);
  if (!sharded_ || model_copy() != 0) return own;
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
  // The optimizer state that this rank would have without ZeRO, on the meta device.
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
    Tensor result = mine == own.end() ? Tensor() : mine->tensor;
    if (is_count(entry.tensor)) {
      const Piece first = replicas_of(place).plan().pieces_of(place.parameter)[0];
      result = ranks.rank() == first.rank ? result.clone() : Tensor::zeros({1}, DType::i64, model_.device());
      ranks.broadcast(result, first.rank, {.label = "optimizer state"});
    } else {
      result = replicas_of(place).gather_pieces(place.parameter, result, entry.tensor.dtype(), "optimizer state");
    }
    if (ranks.rank() == 0) whole.push_back({entry.name, result});
  }
  return whole;
}

int ParallelUpdate::model_copies() const { return groups_.data->size() / static_cast<int>(recipe_.layout.ep); }

int ParallelUpdate::model_copy() const {
  const auto cp = static_cast<int>(recipe_.layout.cp);
  return groups_.batch_part() / static_cast<int>(recipe_.layout.ep) * cp + groups_.data->rank() % cp;
}

HeldPieces ParallelUpdate::held(const NamedTensors& tensors, const std::string& prefix) const {
  const std::vector<int> writers = deal_tensors(tensors, model_copies());
  HeldPieces pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    const HeldPiece own = whole_piece({prefix + name, tensor});
    const bool divided = divided_ && divided_->divides(name);
    const auto copies = divided ? ShardedWeights::Copies::same_tokens : ShardedWeights::Copies::all;
    std::vector<TensorBox> boxes{{own.offset, own.part}};
    if (divided) boxes = divided_->boxes(name);
    for (const TensorBox& box : boxes) {
      const HeldPieces in_whole = sharded_ ? sharded_->held(name, own.tensor, box, copies)
                                           : HeldPieces{{own.tensor, own.whole, box.offset, box.part}};
      for (HeldPiece piece : in_whole) {
        piece.writes = piece.writes && (divided || writers[i] == model_copy());
        pieces.push_back(std::move(piece));
      }
    }
  }
  return pieces;
}

HeldPieces ParallelUpdate::held_as_parameters(const NamedTensors& tensors, const std::string& prefix) const {
  if (!divided_) return held(tensors, prefix);
  return held_pieces(tensors, prefix, [](const std::string& name) { return name; });
}

HeldPieces ParallelUpdate::held_state(const NamedTensors& state, const std::string& prefix) const {
  return held_pieces(state, prefix, owner_of);
}

HeldPieces ParallelUpdate::held_pieces(const NamedTensors& tensors, const std::string& prefix,
                                       const std::function<std::string(const std::string& name)>& owner) const {
  std::vector<std::vector<int>> writers;  // indexed by replicas_ and parameter
  for (const auto& replicas : replicas_) writers.push_back(deal_tensors(replicas->parameters(), model_copies()));
  HeldPieces pieces;
  for (const NamedTensor& entry : tensors) {
    const std::string parameter = owner(entry.name);
    const Place place = place_of(parameter);
    const Replicas& replicas = replicas_of(place);
    const ShardPlan& plan = replicas.plan();
    const int rank = replicas.ranks().rank();
    // With ZeRO, ranks with different tokens hold different pieces of the state, so each one writes its own.
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

}  // namespace lamina::train
