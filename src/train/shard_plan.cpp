#include "lamina/train/shard_plan.h"

#include <algorithm>
#include <utility>

namespace lamina::train {
namespace {

constexpr int64_t kLargestBucket = int64_t{1} << 22U;  // 16 MiB of f32: large enough to use a link's bandwidth
// Number of buckets in a small model, so that most can be sent during backward.
constexpr int64_t kBuckets = 8;
// From this size on, a parameter is a bucket of its own: its gradient is then sent without a copy.
constexpr int64_t kLargeParameter = kLargestBucket / 8;

int64_t elements_of(const NamedTensors& parameters, const std::vector<size_t>& which) {
  int64_t elements = 0;
  for (const size_t i : which) elements += parameters[i].tensor.numel();
  return elements;
}

/// Groups of parameters, in the order in which backward completes them: large ones alone, small ones together.
std::vector<std::vector<size_t>> groups_by_size(const NamedTensors& parameters, const std::vector<bool>& whole) {
  int64_t total = 0;
  for (const NamedTensor& parameter : parameters) total += parameter.tensor.numel();
  const int64_t full = std::clamp<int64_t>(total / kBuckets, ShardPlan::kAlignment, kLargestBucket);
  std::vector<std::vector<size_t>> groups;
  std::vector<size_t> small;
  int64_t elements = 0;  // in `small`
  const auto close = [&] {
    if (!small.empty()) groups.push_back(std::exchange(small, {}));
    elements = 0;
  };
  for (size_t i = parameters.size(); i-- > 0;) {  // backward completes the last layers first
    const Tensor& tensor = parameters[i].tensor;
    if (!whole[i] && tensor.numel() >= kLargeParameter) {
      groups.push_back({i});
      continue;
    }
    if (!small.empty() && parameters[small[0]].tensor.dtype() != tensor.dtype()) close();
    small.push_back(i);
    elements += tensor.numel();
    if (elements >= full) close();
  }
  close();
  return groups;
}

/// Groups of adjacent parameters with the same unit and dtype.
std::vector<std::vector<size_t>> groups_by_unit(const NamedTensors& parameters, const std::vector<int64_t>& units) {
  std::vector<std::vector<size_t>> groups;
  for (size_t i = parameters.size(); i-- > 0;) {
    const bool joins = !groups.empty() && units[groups.back()[0]] == units[i] &&
                       parameters[groups.back()[0]].tensor.dtype() == parameters[i].tensor.dtype();
    if (!joins) groups.emplace_back();
    groups.back().push_back(i);
  }
  return groups;
}

}  // namespace

ShardPlan::ShardPlan(const NamedTensors& parameters, const std::vector<bool>& whole, int ranks,
                     const std::vector<int64_t>& units, bool in_turn)
    : bucket_of_(parameters.size()), pieces_of_(parameters.size()) {
  for (std::vector<size_t>& group :
       units.empty() ? groups_by_size(parameters, whole) : groups_by_unit(parameters, units)) {
    for (const size_t i : group) bucket_of_[i] = buckets_.size();
    const int64_t elements = elements_of(parameters, group);
    buckets_.push_back({.parameters = std::move(group), .elements = elements, .pieces = {}, .counts = {}});
  }
  std::vector<int64_t> load(static_cast<size_t>(ranks));
  int64_t dealt = 0;
  for (Bucket& bucket : buckets_) divide(bucket, parameters, whole, ranks, load, in_turn ? &dealt : nullptr);
}

void ShardPlan::divide(Bucket& bucket, const NamedTensors& parameters, const std::vector<bool>& whole, int ranks,
                       std::vector<int64_t>& load, int64_t* dealt) {
  int64_t shared = 0;  // number of elements in parameters that may be cut
  for (const size_t i : bucket.parameters) shared += whole[i] ? 0 : parameters[i].tensor.numel();
  bucket.counts.assign(static_cast<size_t>(ranks), 0);
  int64_t before = 0;
  const auto add = [&](size_t parameter, int rank, int64_t begin, int64_t count) {
    if (count == 0) return;
    bucket.pieces.push_back({parameter, rank, begin, count});
    bucket.counts[static_cast<size_t>(rank)] += count;
    load[static_cast<size_t>(rank)] += count;
    pieces_of_[parameter].push_back(bucket.pieces.back());
  };
  for (const size_t i : bucket.parameters) {
    const int64_t elements = parameters[i].tensor.numel();
    if (whole[i]) {
      const int64_t lightest = std::min_element(load.begin(), load.end()) - load.begin();
      add(i, static_cast<int>(dealt == nullptr ? lightest : (*dealt)++ % ranks), 0, elements);
      continue;
    }
    int64_t begin = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t cut = shared * (rank + 1) / ranks - before;  // where this rank's share of the bucket ends
      const int64_t rounded = (std::max<int64_t>(cut, 0) + kAlignment / 2) / kAlignment * kAlignment;
      const int64_t end = rank + 1 == ranks ? elements : std::clamp(rounded, begin, elements);
      add(i, rank, begin, end - begin);
      begin = end;
    }
    before += elements;
  }
  std::stable_sort(bucket.pieces.begin(), bucket.pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.rank < b.rank; });
}

Piece ShardPlan::piece_of(size_t parameter, int rank) const {
  for (const Piece& piece : pieces_of_[parameter]) {
    if (piece.rank == rank) return piece;
  }
  return {parameter, rank, 0, 0};
}

}  // namespace lamina::train
