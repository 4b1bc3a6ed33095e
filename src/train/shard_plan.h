#pragma once

#include <vector>

#include "lamina/tensor/named_tensor.h"

namespace lamina::train {

/// A part of a parameter that one rank owns: elements [begin, begin + count) of the flattened parameter.
struct Piece {
  size_t parameter = 0;  ///< index in the list of parameters
  int rank = 0;          ///< owner
  int64_t begin = 0;
  int64_t count = 0;
};

/// Parameters whose gradients travel together.
struct Bucket {
  std::vector<size_t> parameters;  ///< indices, in the order in which backward completes them
  int64_t elements = 0;            ///< of all of them
  std::vector<Piece> pieces;       ///< by rank, then in the order of `parameters`
  std::vector<int64_t> counts;     ///< elements of each rank
};

/// Divides parameters into buckets, and each bucket into pieces for `ranks` owners (ZeRO). Depends on names, shapes and
/// ranks only, so all ranks compute the same plan. Pieces begin at multiples of kAlignment within a parameter; a
/// parameter has at most one piece per rank.
class ShardPlan {
 public:
  static constexpr int64_t kAlignment = 4096;  ///< also the elements of one partial sum of the gradient norm

  /// `whole[i]`: parameter i has one owner, as Muon needs for matrices. They are dealt to the rank with the fewest
  /// elements so far, or with `in_turn` one after the other: tensor-parallel ranks, whose parts of a matrix may differ
  /// in size, then deal alike. Parameters come in the order of forward passes. With `units`, one number per parameter,
  /// neighbours with the same number form a bucket; else buckets have similar sizes.
  ShardPlan(const NamedTensors& parameters, const std::vector<bool>& whole, int ranks,
            const std::vector<int64_t>& units = {}, bool in_turn = false);

  const std::vector<Bucket>& buckets() const { return buckets_; }  ///< in the order in which backward completes them
  size_t bucket_of(size_t parameter) const { return bucket_of_[parameter]; }  ///< index of its bucket
  /// The pieces of a parameter, in rank order. They cover it without gaps.
  const std::vector<Piece>& pieces_of(size_t parameter) const { return pieces_of_[parameter]; }
  /// The piece of `rank`; count 0 if it owns none.
  Piece piece_of(size_t parameter, int rank) const;

 private:
  void divide(Bucket& bucket, const NamedTensors& parameters, const std::vector<bool>& whole, int ranks,
              std::vector<int64_t>& load, int64_t* dealt);

  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;
  std::vector<std::vector<Piece>> pieces_of_;
};

}  // namespace lamina::train
