#pragma once

#include <map>

#include "lamina/arch/problem.h"
#include "lamina/arch/weights.h"

namespace lamina::arch {

/// The ranks that hold one model together: tensor · experts · stages of them. Each number is a coordinate of the rank
/// (stage · experts + expert) · tensor + t.
struct ModelGrid {
  int tensor = 1;         ///< tensor parallel: ranks that share heads, columns of feed-forwards and the vocabulary
  int experts = 1;        ///< expert parallel: ranks that share the experts; everything else each holds itself
  int stages = 1;         ///< pipeline parallel: stages of consecutive layers
  int chunks = 1;         ///< interleaved pipeline: groups of consecutive layers on each stage
  bool sequence = false;  ///< sequence parallel: tensor-parallel ranks share the tokens between sublayers

  int size() const { return tensor * experts * stages; }  ///< number of ranks
  int rank_at(int stage, int expert, int t) const { return (stage * experts + expert) * tensor + t; }
  int tensor_of(int rank) const { return rank % tensor; }            ///< number among the tensor-parallel ranks
  int expert_of(int rank) const { return rank / tensor % experts; }  ///< number among the expert-parallel ranks
  int stage_of(int rank) const { return rank / tensor / experts; }   ///< pipeline stage
};

/// A pipeline stage.
struct PipelineStage {
  int index = 0;
  int count = 1;
  int chunks = 1;                                      ///< groups of layers on the stage (arXiv:2104.04473, §2.2)
  bool is_first() const { return index == 0; }         ///< has the embedding
  bool is_last() const { return index + 1 == count; }  ///< has the head
};

/// The part of a weight that one rank of a ModelGrid holds: elements [begin, begin + count) of dimension `axis`. If
/// `axis` is not 0, also only [lead_begin, lead_begin + lead_count) of dimension 0: some of the experts.
struct Shard {
  std::vector<int64_t> whole_shape;  ///< of the weight on one device
  int axis = 0;
  int64_t begin = 0;
  int64_t count = 0;  ///< 0: the rank does not hold the weight
  int64_t lead_begin = 0;
  int64_t lead_count = 0;
  /// Ranks that hold the same part and compute the same tokens, ascending. Expert-parallel ranks compute different
  /// tokens, as data-parallel ones do.
  std::vector<int> holders;
  /// Whether each holder computes only its share of the gradient, so that the gradient is the sum over `holders`.
  /// Inside a mixer or feed-forward a rank computes with its own heads or columns. Elsewhere it computes with all
  /// features, of all tokens or with sequence parallel of its own tokens. Pipeline stages that share a table each
  /// compute with their own layers.
  bool sums_gradient = false;
  /// Whether expert-parallel ranks hold different parts: of tokens of all of them. Else each has the same part.
  bool by_experts = false;
  int first_copy = 0;  ///< the lowest rank of the grid with the same part, whatever its tokens
  /// Parts of several sections of dimension 0 (Division::Kind::sections), in order; the rank holds them together as one
  /// tensor of `count` rows. Each has its own `begin`, in the whole weight, and its own holders. Empty: one part.
  std::vector<Shard> sections = {};

  /// Shape of the part.
  std::vector<int64_t> shape() const;
};

/// Shards of one rank by the weight's full name ("layers.0.mixer.q.weight").
using Shards = std::map<std::string, Shard>;

/// Units [begin, end) that a rank of `ranks` holds, see Division. With at least as many groups as ranks a rank holds
/// whole groups. With fewer, several ranks share a group's units, or all hold them if there are not enough (KV heads).
struct UnitRange {
  int64_t begin = 0;
  int64_t end = 0;
};
UnitRange unit_range(const Division& division, int ranks, int rank);

/// The architecture that a rank computes: its heads, columns of feed-forwards and tokens of the vocabulary. `spec` is
/// resolved, and tensor_parallel_problems() finds nothing.
ArchSpec sharded_spec(const ArchSpec& spec, int ranks, int rank);
/// The slice of every weight of the resolved `spec` that a rank holds. Shards differ by at most one unit.
Shards weight_shards(const ArchSpec& spec, const ModelGrid& grid, int rank);

/// Experts [begin, end) of `experts` that an expert-parallel rank holds.
UnitRange expert_range(int64_t experts, int ranks, int rank);
/// Layers [begin, end) of `layers` that a pipeline stage holds. The first stage also has the embedding, the last one
/// the final norm and the head.
UnitRange stage_layers(int64_t layers, int stages, int stage);
/// Layers of a chunk of a stage. Chunk c of stage s is number c · stages + s of all chunks, in the order of the layers.
UnitRange chunk_layers(int64_t layers, const PipelineStage& stage, int chunk);

/// Why `ranks` tensor-parallel ranks cannot compute the resolved architecture; empty if they can.
std::vector<Problem> tensor_parallel_problems(const ArchSpec& spec, int64_t ranks);
std::vector<Problem> expert_parallel_problems(const ArchSpec& spec, int64_t ranks);  ///< see tensor_parallel_problems()
/// The same for pipeline stages with `chunks` groups of layers each.
std::vector<Problem> pipeline_problems(const ArchSpec& spec, int64_t stages, int64_t chunks = 1);
/// Why `ranks` context-parallel ranks cannot share the positions of sequences; empty if they can.
std::vector<Problem> context_parallel_problems(const ArchSpec& spec, int64_t ranks);

}  // namespace lamina::arch
