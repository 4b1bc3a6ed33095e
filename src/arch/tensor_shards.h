#pragma once

#include <map>

#include "lamina/arch/problem.h"
#include "lamina/arch/weights.h"

namespace lamina::arch {

/// The ranks that hold one model together: tensor · experts · stages of them. A rank has one coordinate per dimension;
/// its number is (stage · experts + expert) · tensor + t.
struct ModelGrid {
  int tensor = 1;         ///< tensor parallelism: ranks that divide heads, feed-forward columns and the vocabulary
  int experts = 1;        ///< expert parallelism: ranks that divide the experts; each holds everything else
  int stages = 1;         ///< pipeline parallelism: stages of consecutive layers
  int chunks = 1;         ///< interleaved pipeline: groups of consecutive layers on each stage
  bool sequence = false;  ///< sequence parallelism: tensor-parallel ranks divide the tokens between sublayers

  int size() const { return tensor * experts * stages; }  ///< number of ranks
  int rank_at(int stage, int expert, int t) const { return (stage * experts + expert) * tensor + t; }
  int tensor_of(int rank) const { return rank % tensor; }            ///< index among the tensor-parallel ranks
  int expert_of(int rank) const { return rank / tensor % experts; }  ///< index among the expert-parallel ranks
  int stage_of(int rank) const { return rank / tensor / experts; }   ///< pipeline stage
};

/// One stage of a pipeline.
struct PipelineStage {
  int index = 0;
  int count = 1;
  int chunks = 1;                                      ///< groups of layers on the stage (arXiv:2104.04473, §2.2)
  bool is_first() const { return index == 0; }         ///< has the embedding
  bool is_last() const { return index + 1 == count; }  ///< has the head
};

/// The part of a weight that one rank of a ModelGrid holds: elements [begin, begin + count) of dimension `axis`. If
/// `axis` is not 0, also only the experts [lead_begin, lead_begin + lead_count) of dimension 0.
struct Shard {
  std::vector<int64_t> whole_shape;  ///< shape of the weight on a single device
  int axis = 0;
  int64_t begin = 0;
  int64_t count = 0;  ///< 0: the rank does not hold the weight
  int64_t lead_begin = 0;
  int64_t lead_count = 0;
  /// Ranks that hold the same part and compute the same tokens, ascending. Expert-parallel ranks, like data-parallel
  /// ones, compute different tokens and are not included.
  std::vector<int> holders;
  /// Whether each holder computes only a part of the gradient, so that the gradient is the sum over `holders`. There
  /// are three such cases. In a mixer or feed-forward, a rank computes with its own heads or columns. With sequence
  /// parallelism it computes its own tokens. For a table that pipeline stages share, each stage computes the part of
  /// its own layers.
  bool sums_gradient = false;
  /// Whether expert-parallel ranks hold different parts of the weight, with gradients from the tokens of all ranks.
  /// Otherwise they all hold the same part.
  bool by_experts = false;
  int first_copy = 0;  ///< the lowest rank in the grid with the same part, even if it computes other tokens
  /// For a weight with sections of dimension 0 (Division::Kind::sections): the rank's part of each section, in order.
  /// The rank holds them as one tensor with `count` rows. Each has its own holders, and its own `begin` in the whole
  /// weight. Empty: the weight has no sections.
  std::vector<Shard> sections = {};

  /// Shape of this part.
  std::vector<int64_t> shape() const;
};

/// The shards of one rank, by the weight's full name ("layers.0.mixer.q.weight").
using Shards = std::map<std::string, Shard>;

/// The units [begin, end) that a rank holds (see Division). With at least as many groups as ranks, a rank holds whole
/// groups. With fewer, several ranks share a group: they divide its units or, if there are not enough units (KV heads),
/// each holds all of them.
struct UnitRange {
  int64_t begin = 0;
  int64_t end = 0;
};
UnitRange unit_range(const Division& division, int ranks, int rank);

/// The architecture that one rank computes: its heads, feed-forward columns and vocabulary rows. `spec` must be
/// resolved, and tensor_parallel_problems() must be empty.
ArchSpec sharded_spec(const ArchSpec& spec, int ranks, int rank);
/// The part of every weight of the resolved `spec` that a rank holds. Parts differ by at most one unit.
Shards weight_shards(const ArchSpec& spec, const ModelGrid& grid, int rank);

/// The experts [begin, end) of `experts` that an expert-parallel rank holds.
UnitRange expert_range(int64_t experts, int ranks, int rank);
/// The layers [begin, end) of `layers` that a pipeline stage holds. The first stage also has the embedding, the last
/// one the final norm and the head.
UnitRange stage_layers(int64_t layers, int stages, int stage);
/// The layers of a chunk of a stage. Chunk c of stage s is chunk number c · stages + s of the model.
UnitRange chunk_layers(int64_t layers, const PipelineStage& stage, int chunk);

/// The reasons why `ranks` tensor-parallel ranks cannot compute the resolved architecture. Empty if they can.
std::vector<Problem> tensor_parallel_problems(const ArchSpec& spec, int64_t ranks);
std::vector<Problem> expert_parallel_problems(const ArchSpec& spec, int64_t ranks);  ///< see tensor_parallel_problems()
/// The reasons for pipeline stages with `chunks` groups of layers each.
std::vector<Problem> pipeline_problems(const ArchSpec& spec, int64_t stages, int64_t chunks = 1);
/// The reasons why `ranks` context-parallel ranks cannot divide the positions of sequences. Empty if they can.
std::vector<Problem> context_parallel_problems(const ArchSpec& spec, int64_t ranks);

}  // namespace lamina::arch
