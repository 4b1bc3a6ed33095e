#pragma once

#include <map>

#include "lamina/nn/model.h"
#include "lamina/train/held_piece.h"

namespace lamina::train {

/// Converts tensors between a rank that holds a part of the model (tensor parallel, expert parallel, pipeline stages)
/// and the whole model, and sums gradients that ranks computed in shares. Works on every tensor with a parameter's
/// shape: weights, gradients, averages, optimizer moments. Names are those of named_parameters(), with packed
/// parameters, or of state_dict(). All ranks of the group call gather() and sum_gradients() with the same names in the
/// same order.
class ShardedWeights {
 public:
  /// `ranks` hold the model together, in the order of model.grid(). `model` must outlive this.
  ShardedWeights(const nn::Model& model, std::shared_ptr<comm::Communicator> ranks);

  comm::Communicator& ranks() const { return *ranks_; }

  /// The whole model on a meta device: names and shapes of a single-device run.
  const nn::Model& whole_model() const { return whole_; }
  /// Whether this rank holds a part of the tensor.
  bool holds(const std::string& name) const;
  /// The rank's part of a whole tensor.
  Tensor own_part(const std::string& name, const Tensor& whole) const;
  /// The whole tensor, from the parts `own` of all ranks; undefined on a rank that holds none.
  Tensor gather(const std::string& name, const Tensor& own, DType dtype) const;
  /// Whether the tensor-parallel ranks of this stage hold different parts of the tensor.
  bool divided_by_tensor(const std::string& name) const;
  /// The whole tensor, for experts those of this rank, from the parts of the tensor-parallel ranks `peers`.
  Tensor gather_from_peers(const std::string& name, const Tensor& own, comm::Communicator& peers) const;
  /// The rank's part of what gather_from_peers() returned.
  Tensor own_part_for_peers(const std::string& name, const Tensor& whole) const;
  /// gather() of the tensor `name` in `own`, which is shaped like `parameter`; not in `own` if this rank holds no part.
  Tensor gather_from(const NamedTensors& own, const std::string& name, const std::string& parameter, DType dtype) const;
  /// The ranks among which the lowest one represents a part that several hold.
  enum class Copies {
    all,          ///< all that hold it
    same_tokens,  ///< those with the same tokens (arch::Shard::holders): the others hold other pieces (ZeRO)
  };
  /// Where a box of this rank's part of `parameter` lies in the whole tensor. `name` is the tensor's in checkpoints, as
  /// "optimizer.layers.0.norm1.weight.m". A piece is written if this rank represents it among `copies`.
  HeldPieces held(const std::string& parameter, const std::string& name, const TensorBox& own,
                  Copies copies = Copies::all) const;
  /// Whether this rank holds the whole tensor's first element and represents it among `copies`.
  bool has_first_element(const std::string& name, Copies copies) const;
  /// The rank that holds the tensor's first element and is the lowest of those that do.
  int first_holder(const std::string& name) const;
  /// Whether expert-parallel ranks hold different parts of the tensor.
  bool by_experts(const std::string& name) const;

  /// Sums the gradients that several ranks computed in shares (arch::Shard::sums_gradient), in place. gradients[i] is
  /// that of parameters[i].
  void sum_gradients(const NamedTensors& parameters, const std::vector<Tensor>& gradients);

  /// Elements [begin, end) of a flattened tensor.
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  /// Elements of this rank's part that no lower rank with the same tokens holds. Over all tensor-parallel ranks and
  /// stages they cover the whole tensor, or its experts of this rank, once.
  std::vector<Range> counted_elements(const std::string& name) const;

 private:
  /// Indices [own, own + count) of a rank's part are [whole, whole + count) of the whole tensor.
  struct Block {
    int64_t own = 0;
    int64_t whole = 0;
    int64_t count = 0;
    const arch::Shard* shard = nullptr;
  };
  /// A rank's part of a tensor along `axis`. If that is not 0, also only shape[0] elements of dimension 0: experts.
  struct Part {
    Shape shape;  ///< of the part; 0 along `axis` if the rank holds nothing
    int axis = 0;
    int64_t lead_begin = 0;  ///< first expert
    std::vector<Block> blocks;
  };
  Part part_of(const std::string& name, int rank) const;
  bool represents(const Block& block, Copies copies) const;
  /// The places of a block in the whole tensor.
  static Tensor place_of(const Tensor& whole, const Part& part, const Block& block);

  const nn::Model& model_;
  std::shared_ptr<comm::Communicator> ranks_;
  nn::Model whole_;
  std::map<std::string, Shape> shapes_;                     ///< of whole tensors
  std::map<std::string, nn::Module::JoinedLayout> joined_;  ///< of the whole model
  std::vector<arch::Shards> shards_;                        ///< of every rank
  /// Groups of ranks that sum gradients, by the lowest rank of every rank's group.
  std::map<std::vector<int>, std::shared_ptr<comm::Communicator>> groups_;
  std::map<const arch::Shard*, std::vector<int>> group_of_;  ///< of this rank's shards that are summed
};

}  // namespace lamina::train
