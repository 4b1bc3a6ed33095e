// Saving and loading a Learner's state, as pieces of the tensors of a single-device run.
#include <algorithm>
#include <set>

#include "lamina/io/checkpoint.h"
#include "lamina/train/learner.h"
#include "lamina/train/parameter_groups.h"

namespace lamina::train {
namespace {

/// Throws an Error unless the set contains every weight of the architecture with its shape, and nothing else. `tied`,
/// second names of weights, may be present or not.
void check_weight_set(const io::PieceSet& weights, const arch::ArchSpec& spec, const nn::StateDict& tied) {
  std::set<std::string> known;
  for (const NamedTensor& entry : tied) known.insert(entry.name);
  for (const io::WeightSlot& slot : io::weight_slots(spec)) {
    known.insert(slot.name);
    LAMINA_CHECK(weights.contains(slot.name), "weights: ", slot.name, " is missing; load weights of the same model");
    LAMINA_CHECK(weights.shape(slot.name) == slot.shape, "weights: ", slot.name, " is ", weights.shape(slot.name),
                 "; expected ", slot.shape);
  }
  for (const std::string& name : weights.names()) {
    LAMINA_CHECK(known.contains(name), "weights: ", name, " has no place in this architecture");
  }
}

void check_state_set(const io::PieceSet& state, const HeldPieces& pieces) {
  for (const HeldPiece& piece : pieces) {
    LAMINA_CHECK(state.contains(piece.tensor), "training state: ", piece.tensor,
                 " is missing; the checkpoint is of another recipe");
    LAMINA_CHECK(state.shape(piece.tensor) == piece.whole && state.dtype(piece.tensor) == piece.part.dtype(),
                 "training state: ", piece.tensor, " is ", state.dtype(piece.tensor), " ", state.shape(piece.tensor),
                 "; expected ", piece.part.dtype(), " ", piece.whole, "; the checkpoint is of another recipe");
  }
}

void copy_from(const io::PieceSet& set, const HeldPieces& pieces) {
  for (const HeldPiece& piece : pieces) set.copy(piece.tensor, piece.offset, piece.part);
}

}  // namespace

HeldPieces Learner::kept_pieces() const {
  std::set<std::string> known;
  for (const io::WeightSlot& slot : io::weight_slots(recipe_.architecture)) known.insert(slot.name);
  NamedTensors weights;
  for (const NamedTensor& entry : model_.state_dict()) {
    // lists each tied weight once
    if (known.erase(entry.name) > 0) weights.push_back({entry.name, entry.tensor.detach()});
  }
  if (parallel_) return parallel_->held(weights, "");
  HeldPieces pieces;
  for (const NamedTensor& entry : weights) pieces.push_back(whole_piece(entry));
  return pieces;
}

void Learner::with_kept_pieces(const std::function<void(const HeldPieces&)>& use) {
  const Ema::InPlace averages(ema_.get());
  use(kept_pieces());
}

HeldPieces Learner::pieces_of(const NamedTensors& optimizer_state) const {
  HeldPieces pieces;
  const auto add = [&](const NamedTensors& tensors, const char* prefix) {
    if (parallel_) {
      const HeldPieces held = parallel_->held_as_parameters(tensors, prefix);
      pieces.insert(pieces.end(), held.begin(), held.end());
      return;
    }
    for (const NamedTensor& entry : tensors) pieces.push_back(whole_piece({prefix + entry.name, entry.tensor}));
  };
  if (parallel_) {
    pieces = parallel_->held_state(optimizer_state, kOptimizerPrefix);
  } else {
    add(optimizer_state, kOptimizerPrefix);
  }
  if (ema_) {
    add(ema_->average(), kAveragePrefix);
    add(kept_parameters(), kWeightsPrefix);
  }
  return pieces;
}

HeldPieces Learner::training_pieces() const { return pieces_of(optimizer_->state()); }

void Learner::load_weights(const io::PieceSet& weights) {
  const NoGrad off(tape_);
  check_weight_set(weights, recipe_.architecture, model_.state_dict());
  copy_from(weights, kept_pieces());
  start_optimizer();
}

void Learner::load_weights(const nn::StateDict& weights) { load_weights(io::PieceSet::whole(weights, "weights")); }

void Learner::load(const io::PieceSet& kept_weights, const io::PieceSet& state) {
  load_weights(kept_weights);
  const NoGrad off(tape_);
  const NamedTensors optimizer_state = optimizer_->state();
  const HeldPieces pieces = pieces_of(optimizer_state);
  check_state_set(state, pieces);
  if (!parallel_) {  // with several ranks, a rank does not know all entries
    std::set<std::string> known;
    for (const HeldPiece& piece : pieces) known.insert(piece.tensor);
    for (const std::string& name : state.names()) {
      LAMINA_CHECK(!name.starts_with(kOptimizerPrefix) || known.contains(name), "training state: ", name,
                   " belongs to no parameter of this recipe's optimizer");
    }
  }
  copy_from(state, pieces);
  optimizer_->load_state(optimizer_state);  // reads the update counts, which are copies
}

void Learner::load(const nn::StateDict& kept_weights, const NamedTensors& state) {
  load(io::PieceSet::whole(kept_weights, "weights"), io::PieceSet::whole(state, "training state"));
}

}  // namespace lamina::train
