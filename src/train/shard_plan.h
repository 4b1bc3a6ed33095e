#pragma once

#include <vector>

#include "lamina/tensor/named_tensor.h"

namespace lamina::train {

/// A part of a parameter that one rank owns: elements [begin, begin + count) of the flattened parameter.
struct Piece {
  size_t parameter = 0;  ///< index in the list of parameters
  int rank = 0;          ///< the rank that owns it
  int64_t begin = 0;
  int64_t count = 0;
};

/// Parameters whose gradients are sent together.
struct Bucket {
  std::vector<size_t> parameters;  ///< indices, in the order in which backward completes them
  int64_t elements = 0;            ///< number of elements in all of them
  std::vector<Piece> pieces;       ///< ordered by rank, then as in `parameters`
  std::vector<int64_t> counts;     ///< number of elements per rank
};

/// Divides parameters into buckets, and each bucket into pieces for `ranks` owners (ZeRO). Depends only on names,
/// shapes and ranks, so all ranks compute the same plan. Pieces begin at multiples of kAlignment within a parameter,
/// and a parameter has at most one piece per rank.
class ShardPlan {
 public:
  static constexpr int64_t kAlignment = 4096;  ///< also the number of elements in a partial sum of the gradient norm

  /// Parameters must be in the order of the forward pass.
  ///   whole    if whole[i], parameter i has a single owner, as Muon requires for matrices: the rank with the fewest
  ///            elements so far
  ///   in_turn  choose these owners one after the other instead; tensor-parallel ranks, whose parts of a matrix may
  ///            differ in size, then choose alike
  ///   units    one number per parameter: adjacent parameters with the same number form a bucket; empty: a large
  ///            parameter is a bucket, small ones share buckets of a similar size
  ShardPlan(const NamedTensors& parameters, const std::vector<bool>& whole, int ranks,
            const std::vector<int64_t>& units = {}, bool in_turn = false);

  const std::vector<Bucket>& buckets() const { return buckets_; }  ///< in the order in which backward completes them
  size_t bucket_of(size_t parameter) const { return bucket_of_[parameter]; }  ///< index of its bucket
  /// The pieces of a parameter, in rank order. They cover it without gaps.
  const std::vector<Piece>& pieces_of(size_t parameter) const { return pieces_of_[parameter]; }
  /// The piece that `rank` owns. Its count is 0 if the rank owns none.
  Piece piece_of(size_t parameter, int rank) const;

 private:
  void divide(Bucket& bucket, const NamedTensors& parameters, const std::vector<bool>& whole, int ranks,
              std::vector<int64_t>& load, int64_t* dealt);

  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;
  std::vector<std::vector<Piece>> pieces_of_;
};

}  // namespace lamina::train
