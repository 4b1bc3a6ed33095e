#include "lamina/train/divided_weights.h"

#include <algorithm>
#include <numeric>

#include "lamina/train/parameter_groups.h"
#include "lamina/train/replicas.h"

namespace lamina::train {

DividedWeights::DividedWeights(const nn::Model& shapes, const Recipe& recipe, const RankGroups& groups) {
  const std::map<std::string, nn::Module::PackedLayout> layouts = shapes.packed_layouts();
  const auto by_experts = [&](const std::string& name) {
    const auto layout = layouts.find(name);
    const std::string& first = layout == layouts.end() ? name : layout->second.parts[0].name;
    return !shapes.shards().empty() && shapes.shards().at(first).by_experts;
  };
  NamedTensors parts[2];
  for (const NamedTensor& parameter : distinct_parameters(shapes)) {
    const size_t set = by_experts(parameter.name) ? 1 : 0;
    places_[parameter.name] = {set, parts[set].size()};
    parts[set].push_back(parameter);
  }
  for (const size_t i : {0, 1}) {
    const auto& ranks = i == 0 ? groups.data : groups.same_experts;
    sets_.push_back(
        {parts[i], ranks, zero_plan(parts[i], recipe, ranks->size()), std::vector<Tensor>(parts[i].size())});
  }
  for (const auto& [name, layout] : layouts) {
    int64_t begin = 0;
    for (const auto& [part, rows] : layout.parts) {
      packed_[part] = {name, layout.axis, begin, rows};
      begin += rows;
    }
  }
}

void DividedWeights::attach(Tape& tape, std::function<void(int64_t layer)> complete) {
  tape_ = &tape;
  complete_ = std::move(complete);
}

void DividedWeights::created(const NamedTensors& parameters) {
  for (const NamedTensor& parameter : parameters) {
    const auto found = places_.find(parameter.name);
    // The second name of a tied weight, or already divided.
    if (found == places_.end() || !parameter.tensor.has_memory()) continue;
    Set& set = sets_[found->second.set];
    const size_t i = found->second.parameter;
    set.parameters[i].tensor = parameter.tensor;
    if (!set.divided()) continue;
    const Tensor whole = parameter.tensor.detach();
    const Piece own = set.plan.piece_of(i, set.ranks->rank());
    if (own.count == whole.numel()) {
      set.pieces[i] = whole.clone();
    } else if (own.count > 0) {
      set.pieces[i] = whole.reshape({whole.numel()}).slice(0, own.begin, own.count).clone();
    }
    whole.release_memory();
  }
}

void DividedWeights::before_forward(int64_t layer) {
  need(layer);
  LAMINA_CHECK(tape_ != nullptr, "divided weights: a pass before attach()");
  tape_->mark([this, layer] { complete_(layer); });
}

void DividedWeights::after_forward(int64_t layer) {
  tape_->mark([this, layer] { need(layer); });
}

void DividedWeights::need(int64_t layer) {
  if (layer_ == layer) return;
  if (layer_) free(*layer_);
  gather(layer);
  layer_ = layer;
}

void DividedWeights::gather(int64_t layer) {
  for (Set& set : sets_) {
    if (!set.divided()) continue;
    for (const Bucket& bucket : set.plan.buckets()) {
      if (layer_of(set.parameters[bucket.parameters[0]].name) == layer) gather(set, bucket);
    }
  }
}

void DividedWeights::gather(Set& set, const Bucket& bucket) {
  const Tensor& first = set.parameters[bucket.parameters[0]].tensor;
  if (first.has_memory()) return;
  const Tensor buffer = Tensor::empty({bucket.elements}, first.dtype(), first.device());
  const int rank = set.ranks->rank();
  const int64_t own_begin = std::accumulate(bucket.counts.begin(), bucket.counts.begin() + rank, int64_t{0});
  // Per parameter index: its pieces, and their positions.
  std::map<size_t, std::vector<std::pair<Piece, int64_t>>> places;
  int64_t at = 0;
  for (const Piece& piece : bucket.pieces) {
    places[piece.parameter].emplace_back(piece, at);
    if (piece.rank == rank) {
      buffer.slice(0, at, piece.count).copy_(set.pieces[piece.parameter].reshape({piece.count}));
    }
    at += piece.count;
  }
  set.ranks->all_gather(buffer.slice(0, own_begin, bucket.counts[static_cast<size_t>(rank)]), buffer, bucket.counts,
                        {.label = "weights"});
  for (const size_t i : bucket.parameters) {
    set.parameters[i].tensor.restore_memory([&](const Tensor& whole) {
      const Tensor flat = whole.reshape({whole.numel()});
      for (const auto& [piece, begin] : places[i]) {
        flat.slice(0, piece.begin, piece.count).copy_(buffer.slice(0, begin, piece.count));
      }
    });
  }
}

void DividedWeights::free(int64_t layer) {
  for (const Set& set : sets_) {
    for (const NamedTensor& parameter : set.parameters) {
      if (set.divided() && layer_of(parameter.name) == layer && parameter.tensor.has_memory()) {
        parameter.tensor.release_memory();
      }
    }
  }
}

void DividedWeights::free_all() {
  for (const Set& set : sets_) {
    for (const NamedTensor& parameter : set.parameters) {
      if (set.divided() && parameter.tensor.has_memory()) parameter.tensor.release_memory();
    }
  }
  layer_.reset();
}

const std::string& DividedWeights::parameter_of(const std::string& name) const {
  const auto packed = packed_.find(name);
  return packed == packed_.end() ? name : packed->second.parameter;
}

bool DividedWeights::divides(const std::string& name) const {
  const auto found = places_.find(parameter_of(name));
  return found != places_.end() && sets_[found->second.set].divided();
}

Tensor DividedWeights::piece(const std::string& parameter) const {
  const Place place = places_.at(parameter);
  const Set& set = sets_[place.set];
  return set.divided() ? set.pieces[place.parameter] : set.parameters[place.parameter].tensor;
}

std::vector<TensorBox> DividedWeights::boxes(const std::string& name) const {
  const Place place = places_.at(parameter_of(name));
  const Set& set = sets_[place.set];
  const Tensor own = set.pieces[place.parameter];
  if (!own.defined()) return {};
  const Shape& shape = set.parameters[place.parameter].tensor.shape();
  const int64_t first = set.plan.piece_of(place.parameter, set.ranks->rank()).begin;
  std::vector<TensorBox> boxes = boxes_of_range(shape, first, own.reshape({own.numel()}));
  const auto packed = packed_.find(name);
  if (packed == packed_.end()) return boxes;
  const auto& [parameter, axis, begin, rows] = packed->second;
  std::vector<TensorBox> inside;
  for (TensorBox& box : boxes) {
    const int64_t from = std::max(box.offset[axis], begin);
    const int64_t to = std::min(box.offset[axis] + box.part.dim(axis), begin + rows);
    if (from >= to) continue;
    box.part = box.part.slice(axis, from - box.offset[axis], to - from);
    box.offset[axis] = from - begin;
    inside.push_back(std::move(box));
  }
  return inside;
}

DividedWeights::Use::Use(DividedWeights* weights, bool all) : weights_(weights) {
  if (weights_ == nullptr) return;
  weights_->gather(kOuter);
  for (const auto& [name, place] : weights_->places_) {
    if (all && layer_of(name) != kOuter) weights_->gather(layer_of(name));
  }
}

DividedWeights::Use::~Use() {
  if (weights_ != nullptr) weights_->free_all();
}

std::shared_ptr<DividedWeights> divide_weights(const Recipe& recipe, const RankGroups& groups,
                                               nn::ModelOptions& options) {
  if (recipe.layout.zero < 3 || !groups.data || groups.data->size() == 1) return nullptr;
  const auto divided =
      std::make_shared<DividedWeights>(nn::Model(recipe.architecture, Device::meta(), options), recipe, groups);
  options.weights = divided;
  return divided;
}

int64_t layer_of(const std::string& parameter) {
  constexpr std::string_view kPrefix = "layers.";
  return parameter.starts_with(kPrefix) ? std::stoll(parameter.substr(kPrefix.size())) : kOuter;
}

}  // namespace lamina::train
