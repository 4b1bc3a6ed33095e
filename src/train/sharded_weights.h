#pragma once

#include <map>

#include "lamina/nn/model.h"
#include "lamina/train/held_piece.h"

namespace lamina::train {

/// Converts tensors between the part of the model that one rank holds (tensor parallelism, expert parallelism, pipeline
/// stages) and the whole model. Also sums gradients of which each rank computed a share. Works on every tensor with a
/// parameter's shape: weights, gradients, averages, optimizer moments. Names are those of named_parameters(), with
/// packed parameters, or of state_dict(). All ranks of the group must call gather() and sum_gradients() with the same
/// names in the same order.
class ShardedWeights {
 public:
  /// `ranks` hold the model together, in the order of model.grid(). `model` must outlive this object.
  ShardedWeights(const nn::Model& model, std::shared_ptr<comm::Communicator> ranks);

  comm::Communicator& ranks() const { return *ranks_; }

  /// The whole model on a meta device, with the names and shapes of a single-device run.
  const nn::Model& whole_model() const { return whole_; }
  /// Whether this rank holds a part of the tensor.
  bool holds(const std::string& name) const;
  /// This rank's part of a whole tensor.
  Tensor own_part(const std::string& name, const Tensor& whole) const;
  /// Gathers the whole tensor from the parts `own` of all ranks. `own` is undefined on a rank that holds no part.
  Tensor gather(const std::string& name, const Tensor& own, DType dtype) const;
  /// Whether the tensor-parallel ranks of this stage hold different parts of the tensor.
  bool divided_by_tensor(const std::string& name) const;
  /// Gathers the whole tensor from the parts of the tensor-parallel ranks `peers`. For experts: only those of this
  /// rank.
  Tensor gather_from_peers(const std::string& name, const Tensor& own, comm::Communicator& peers) const;
  /// This rank's part of a tensor that gather_from_peers() returned.
  Tensor own_part_for_peers(const std::string& name, const Tensor& whole) const;
  /// gather() of the tensor `name` in `own`, which has the shape of `parameter`. If this rank holds no part, it is not
  /// in `own`.
  Tensor gather_from(const NamedTensors& own, const std::string& name, const std::string& parameter, DType dtype) const;
  /// Several ranks may hold the same part; the lowest of them represents it. Copies selects which ranks are compared.
  enum class Copies {
    all,          ///< all ranks that hold the part
    same_tokens,  ///< ranks with the same tokens (arch::Shard::holders); others hold different ZeRO pieces
  };
  /// The position of a box of this rank's part of `parameter` in the whole tensor. `name` is the tensor's name in
  /// checkpoints, for example "optimizer.layers.0.norm1.weight.m". The rank writes the piece if it represents it among
  /// `copies`.
  HeldPieces held(const std::string& parameter, const std::string& name, const TensorBox& own,
                  Copies copies = Copies::all) const;
  /// Whether this rank holds the whole tensor's first element, and represents it among `copies`.
  bool has_first_element(const std::string& name, Copies copies) const;
  /// The lowest rank that holds the tensor's first element.
  int first_holder(const std::string& name) const;
  /// Whether expert-parallel ranks hold different parts of the tensor.
  bool by_experts(const std::string& name) const;

  /// Sums, in place, gradients of which several ranks computed shares (arch::Shard::sums_gradient). gradients[i]
  /// belongs to parameters[i].
  void sum_gradients(const NamedTensors& parameters, const std::vector<Tensor>& gradients);

  /// The elements [begin, end) of a flattened tensor.
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  /// The elements of this rank's part that no lower rank with the same tokens holds. Over all tensor-parallel ranks and
  /// stages, these ranges cover the whole tensor (or this rank's experts of it) exactly once.
  std::vector<Range> counted_elements(const std::string& name) const;

 private:
  /// Indices [own, own + count) of a rank's part correspond to [whole, whole + count) of the whole tensor.
  struct Block {
    int64_t own = 0;
    int64_t whole = 0;
    int64_t count = 0;
    const arch::Shard* shard = nullptr;
  };
  /// A rank's part of a tensor along `axis`. If `axis` is not 0, also only shape[0] elements of dimension 0 (experts).
  struct Part {
    Shape shape;  ///< shape of the part; 0 along `axis` if the rank holds nothing
    int axis = 0;
    int64_t lead_begin = 0;  ///< index of the first expert
    std::vector<Block> blocks;
  };
  Part part_of(const std::string& name, int rank) const;
  bool represents(const Block& block, Copies copies) const;
  /// The elements of a whole tensor that a block covers, as a view.
  static Tensor place_of(const Tensor& whole, const Part& part, const Block& block);

  const nn::Model& model_;
  std::shared_ptr<comm::Communicator> ranks_;
  nn::Model whole_;
  std::map<std::string, Shape> shapes_;                             ///< shapes of whole tensors
  std::map<std::string, nn::Module::PackedLayout> packed_layouts_;  ///< layouts of the whole model
  std::vector<arch::Shards> shards_;                                ///< shards of every rank
  /// Groups of ranks that sum gradients. The key has, for every rank, the lowest rank of its group.
  std::map<std::vector<int>, std::shared_ptr<comm::Communicator>> groups_;
  std::map<const arch::Shard*, std::vector<int>> group_of_;  ///< key in groups_ of every shard whose gradient is summed
};

}  // namespace lamina::train
