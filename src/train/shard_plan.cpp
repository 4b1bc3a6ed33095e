#include "lamina/train/shard_plan.h"

#include <algorithm>

namespace lamina::train {
namespace {

constexpr int64_t kLargestBucket = int64_t{1} << 22U;  // 16 MiB of f32: large enough to use a link's bandwidth
// Number of buckets in a small model, so that most can be sent during backward.
constexpr int64_t kBuckets = 8;

}  // namespace

ShardPlan::ShardPlan(const NamedTensors& parameters, const std::vector<bool>& whole, int ranks,
                     const std::vector<int64_t>& units, bool in_turn)
    : bucket_of_(parameters.size()), pieces_of_(parameters.size()) {
  int64_t total = 0;
  for (const NamedTensor& parameter : parameters) total += parameter.tensor.numel();
  const int64_t full = std::clamp<int64_t>(total / kBuckets, kAlignment, kLargestBucket);
  for (size_t i = parameters.size(); i-- > 0;) {  // backward completes the last layers first
    const bool new_dtype =
        !buckets_.empty() && parameters[buckets_.back().parameters[0]].tensor.dtype() != parameters[i].tensor.dtype();
    const bool ends = !buckets_.empty() && (units.empty() ? buckets_.back().elements >= full
                                                          : units[buckets_.back().parameters[0]] != units[i]);
    if (buckets_.empty() || ends || new_dtype) buckets_.emplace_back();
    buckets_.back().parameters.push_back(i);
    buckets_.back().elements += parameters[i].tensor.numel();
    bucket_of_[i] = buckets_.size() - 1;
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
