#include "lamina/train/sharded_weights.h"

#include <algorithm>
#include <numeric>

namespace lamina::train {
namespace {

/// A part of a tensor along a dimension, as a contiguous vector.
Tensor flat_block(const Tensor& tensor, int axis, int64_t begin, int64_t count) {
  const Tensor block = tensor.slice(axis, begin, count).contiguous();
  return block.reshape({block.numel()});
}

/// The sections of a shard, or the shard itself if it has none.
std::vector<const arch::Shard*> parts_of(const arch::Shard& shard) {
  if (shard.sections.empty()) return {&shard};
  std::vector<const arch::Shard*> parts;
  for (const arch::Shard& section : shard.sections) parts.push_back(&section);
  return parts;
}

}  // namespace

ShardedWeights::ShardedWeights(const nn::Model& model, std::shared_ptr<comm::Communicator> ranks)
    : model_(model),
      ranks_(std::move(ranks)),
      whole_(model.spec(), Device::meta(), {.dtype = model.dtype()}),
      packed_layouts_(whole_.packed_layouts()) {
  LAMINA_CHECK(ranks_->size() == model.grid().size() && ranks_->rank() == model.grid_rank(), "rank ", ranks_->rank(),
               " of ", ranks_->size(), " has the part of rank ", model.grid_rank(), " of ", model.grid().size());
  for (const nn::StateDict& tensors : {whole_.state_dict(), whole_.named_parameters()}) {
    for (const NamedTensor& entry : tensors) shapes_.emplace(entry.name, entry.tensor.shape());
  }
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    shards_.push_back(arch::weight_shards(model.spec(), model.grid(), rank));
  }
  // All ranks iterate over the same weights in the same order, so they split in the same order.
  for (const auto& [name, own] : shards_[static_cast<size_t>(ranks_->rank())]) {
    for (size_t section = 0; section < parts_of(own).size(); ++section) {
      std::vector<int> colors;
      bool summed = false;
      for (int rank = 0; rank < ranks_->size(); ++rank) {
        const arch::Shard& shard = *parts_of(shards_[static_cast<size_t>(rank)].at(name))[section];
        colors.push_back(shard.sums_gradient ? shard.holders[0] : rank);
        summed = summed || shard.sums_gradient;
      }
      if (!summed) continue;
      if (!groups_.contains(colors)) groups_[colors] = ranks_->split(colors);
      const arch::Shard* part = parts_of(own)[section];
      if (part->sums_gradient) group_of_[part] = colors;
    }
  }
}

ShardedWeights::Part ShardedWeights::part_of(const std::string& name, int rank) const {
  const auto shape = shapes_.find(name);
  LAMINA_CHECK(shape != shapes_.end(), "the model has no tensor ", name);
  const arch::Shards& shards = shards_[static_cast<size_t>(rank)];
  Part part{shape->second, 0, 0, {}};
  const auto limit = [&](const arch::Shard& shard) {
    if (part.axis == 0 || shard.axis == 0) return;
    part.lead_begin = shard.lead_begin;
    part.shape[0] = shard.lead_count;
  };
  const auto layout = packed_layouts_.find(name);
  if (layout == packed_layouts_.end()) {
    const arch::Shard& shard = shards.at(name);
    part.axis = shard.axis;
    limit(shard);
    int64_t own = 0;
    for (const arch::Shard* section : parts_of(shard)) {
      if (section->count > 0) part.blocks.push_back({own, section->begin, section->count, section});
      own += section->count;
    }
  } else {
    part.axis = layout->second.axis;
    int64_t own = 0;
    int64_t whole = 0;
    for (const auto& [part_name, rows] : layout->second.parts) {
      const arch::Shard& shard = shards.at(part_name);
      limit(shard);
      if (shard.count > 0) part.blocks.push_back({own, whole + shard.begin, shard.count, &shard});
      own += shard.count;
      whole += rows;
    }
  }
  part.shape[part.axis] = 0;
  for (const Block& block : part.blocks) part.shape[part.axis] += block.count;
  return part;
}

bool ShardedWeights::holds(const std::string& name) const { return !part_of(name, ranks_->rank()).blocks.empty(); }

bool ShardedWeights::by_experts(const std::string& name) const {
  const auto layout = packed_layouts_.find(name);
  return shards_[0].at(layout == packed_layouts_.end() ? name : layout->second.parts[0].name).by_experts;
}

Tensor ShardedWeights::place_of(const Tensor& whole, const Part& part, const Block& block) {
  const Tensor place = whole.slice(part.axis, block.whole, block.count);
  return part.axis == 0 ? place : place.slice(0, part.lead_begin, part.shape[0]);
}

Tensor ShardedWeights::own_part(const std::string& name, const Tensor& whole) const {
  const Part part = part_of(name, ranks_->rank());
  LAMINA_CHECK(whole.shape() == shapes_.at(name), name, " is ", whole.shape(), "; expected ", shapes_.at(name));
  Tensor own = Tensor::empty(part.shape, whole.dtype(), whole.device());
  for (const Block& block : part.blocks) {
    own.slice(part.axis, block.own, block.count).copy_(place_of(whole, part, block));
  }
  return own;
}

Tensor ShardedWeights::gather(const std::string& name, const Tensor& own, DType dtype) const {
  comm::Communicator& ranks = *ranks_;
  std::vector<Part> parts;
  std::vector<int64_t> counts;
  // If several ranks hold the same block, only the first one sends it.
  const auto each = [&](int rank, const auto& use) {
    const Part& part = parts[static_cast<size_t>(rank)];
    for (const Block& block : part.blocks) {
      if (block.shard->first_copy == rank) use(part, block);
    }
  };
  for (int rank = 0; rank < ranks.size(); ++rank) {
    parts.push_back(part_of(name, rank));
    int64_t elements = 0;
    each(rank, [&](const Part& part, const Block& block) {
      elements += part.shape.numel() / part.shape[part.axis] * block.count;
    });
    counts.push_back(elements);
  }
  const Device& device = model_.device();
  const Tensor all = Tensor::empty({std::accumulate(counts.begin(), counts.end(), int64_t{0})}, dtype, device);
  int64_t at = std::accumulate(counts.begin(), counts.begin() + ranks.rank(), int64_t{0});
  const Tensor sent = all.slice(0, at, counts[static_cast<size_t>(ranks.rank())]);
  each(ranks.rank(), [&](const Part& part, const Block& block) {
    const Tensor piece = flat_block(own, part.axis, block.own, block.count);
    all.slice(0, at, piece.numel()).copy_(piece);
    at += piece.numel();
  });
  ranks.all_gather(sent, all, counts, {.label = "checkpoint"});
  const Tensor whole = Tensor::empty(shapes_.at(name), dtype, device);
  at = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    each(rank, [&](const Part& part, const Block& block) {
      Tensor place = place_of(whole, part, block);
      place.copy_(all.slice(0, at, place.numel()).reshape(place.shape()));
      at += place.numel();
    });
  }
  return whole;
}

bool ShardedWeights::divided_by_tensor(const std::string& name) const {
  const Part part = part_of(name, ranks_->rank());
  return part.shape[part.axis] != shapes_.at(name)[part.axis] && model_.grid().tensor > 1 &&
         !(part.axis == 0 && by_experts(name));
}

Tensor ShardedWeights::gather_from_peers(const std::string& name, const Tensor& own, comm::Communicator& peers) const {
  const int first = ranks_->rank() - peers.rank();
  std::vector<Part> parts;
  std::vector<int64_t> counts;
  for (int peer = 0; peer < peers.size(); ++peer) {
    parts.push_back(part_of(name, first + peer));
    counts.push_back(parts.back().shape.numel());
  }
  const Tensor all =
      Tensor::empty({std::accumulate(counts.begin(), counts.end(), int64_t{0})}, own.dtype(), own.device());
  peers.all_gather(flat_block(own, 0, 0, own.dim(0)), all, counts, {.label = "matrices"});
  Shape shape = parts[0].shape;
  shape[parts[0].axis] = shapes_.at(name)[parts[0].axis];
  const Tensor whole = Tensor::empty(shape, own.dtype(), own.device());
  int64_t at = 0;
  for (const Part& part : parts) {
    const Tensor piece = all.slice(0, at, part.shape.numel()).reshape(part.shape);
    for (const Block& block : part.blocks) {
      whole.slice(part.axis, block.whole, block.count).copy_(piece.slice(part.axis, block.own, block.count));
    }
    at += piece.numel();
  }
  return whole;
}

Tensor ShardedWeights::own_part_for_peers(const std::string& name, const Tensor& whole) const {
  const Part part = part_of(name, ranks_->rank());
  Tensor own = Tensor::empty(part.shape, whole.dtype(), whole.device());
  for (const Block& block : part.blocks) {
    own.slice(part.axis, block.own, block.count).copy_(whole.slice(part.axis, block.whole, block.count));
  }
  return own;
}

Tensor ShardedWeights::gather_from(const NamedTensors& own, const std::string& name, const std::string& parameter,
                                   DType dtype) const {
  const auto mine = std::find_if(own.begin(), own.end(), [&](const NamedTensor& entry) { return entry.name == name; });
  return gather(parameter, mine == own.end() ? Tensor() : mine->tensor, dtype);
}

bool ShardedWeights::represents(const Block& block, Copies copies) const {
  return (copies == Copies::all ? block.shard->first_copy : block.shard->holders[0]) == ranks_->rank();
}

HeldPieces ShardedWeights::held(const std::string& parameter, const std::string& name, const TensorBox& own,
                                Copies copies) const {
  const Part part = part_of(parameter, ranks_->rank());
  const int64_t first = own.offset[part.axis];
  HeldPieces pieces;
  for (const Block& block : part.blocks) {
    const int64_t begin = std::max(first, block.own);
    const int64_t end = std::min(first + own.part.dim(part.axis), block.own + block.count);
    if (begin >= end) continue;
    HeldPiece piece{name, shapes_.at(parameter), own.offset, own.part.slice(part.axis, begin - first, end - begin)};
    piece.offset[part.axis] = begin - block.own + block.whole;
    if (part.axis != 0) piece.offset[0] += part.lead_begin;
    piece.writes = represents(block, copies);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

bool ShardedWeights::has_first_element(const std::string& name, Copies copies) const {
  const Part part = part_of(name, ranks_->rank());
  return std::any_of(part.blocks.begin(), part.blocks.end(), [&](const Block& block) {
    return block.whole == 0 && part.lead_begin == 0 && represents(block, copies);
  });
}

int ShardedWeights::first_holder(const std::string& name) const {
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    if (!part_of(name, rank).blocks.empty()) return rank;
  }
  return 0;
}

void ShardedWeights::sum_gradients(const NamedTensors& parameters, const std::vector<Tensor>& gradients) {
  const int rank = ranks_->rank();
  std::map<std::vector<int>, std::vector<Tensor>> shares;  // group of ranks that share a sum → their gradients
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Part part = part_of(parameters[i].name, rank);
    for (const Block& block : part.blocks) {
      if (!block.shard->sums_gradient) continue;
      shares[group_of_.at(block.shard)].push_back(gradients[i].slice(part.axis, block.own, block.count));
    }
  }
  for (const auto& share : shares) {
    const std::vector<Tensor>& parts = share.second;  // clang 14 cannot capture a structured binding
    int64_t elements = 0;
    for (const Tensor& part : parts) elements += part.numel();
    const Tensor buffer = Tensor::empty({elements}, parts[0].dtype(), parts[0].device());
    const auto each = [&](const auto& use) {
      int64_t at = 0;
      for (const Tensor& part : parts) {
        use(part, buffer.slice(0, at, part.numel()).reshape(part.shape()));
        at += part.numel();
      }
    };
    each([](const Tensor& part, Tensor place) { place.copy_(part); });
    groups_.at(share.first)->all_reduce(buffer, {.label = "shared gradients"});
    each([](Tensor part, const Tensor& place) { part.copy_(place); });
  }
}

std::vector<ShardedWeights::Range> ShardedWeights::counted_elements(const std::string& name) const {
  const int rank = ranks_->rank();
  const Part part = part_of(name, rank);
  const auto counts = [&](const Block& block) { return block.shard->holders[0] == rank; };
  const int64_t all = part.shape.numel();
  if (std::all_of(part.blocks.begin(), part.blocks.end(), counts)) return {{0, all}};
  if (std::none_of(part.blocks.begin(), part.blocks.end(), counts)) return {};
  LAMINA_CHECK(part.axis == 0, name, ": packed along dimension ", part.axis, ", expected rows");
  std::vector<Range> ranges;
  const int64_t width = all / part.shape[0];
  for (const Block& block : part.blocks) {
    if (counts(block)) ranges.push_back({block.own * width, (block.own + block.count) * width});
  }
  return ranges;
}

}  // namespace lamina::train
