#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// How tensor-parallel ranks divide a weight.
struct Division {
  /// The part that a rank holds.
  enum class Kind : uint8_t {
    whole,     ///< all of it
    divided,   ///< some units along `axis`
    one_rank,  ///< all of it on the last rank, nothing on others: a bias that is added to a sum over ranks
    sections,  ///< of consecutive rows, each divided in its own way
  };
  Kind kind = Kind::whole;
  int axis = 0;        ///< the divided dimension
  int64_t units = 0;   ///< parts of that dimension that are never cut: heads, columns of a feed-forward, tokens
  int64_t groups = 1;  ///< neighbouring units that stay together if there are enough groups: queries of a KV head
  /// Rows of dimension 0 that are divided together.
  struct Section {
    int64_t rows = 0;
    int64_t units = 0;   ///< as above, of these rows
    int64_t groups = 1;  ///< as above
    bool operator==(const Section&) const = default;
  };
  std::vector<Section> sections = {};  ///< of kind `sections`
  bool operator==(const Division&) const = default;
};
/// Several projections in one weight: each rank has its part of every section, in order.
inline Division divided_sections(std::vector<Division::Section> sections) {
  return {Division::Kind::sections, 0, 0, 1, std::move(sections)};
}
/// Output features are divided: the rows of a linear layer's weight, and its bias.
inline Division divided_rows(int64_t units, int64_t groups = 1) {
  return {Division::Kind::divided, 0, units, groups, {}};
}
/// Input features are divided, so outputs are summed over ranks; one rank adds the bias.
inline Division divided_columns(int64_t units, int64_t groups = 1) {
  return {Division::Kind::divided, 1, units, groups, {}};
}

/// One parameter tensor of a resolved architecture.
struct Weight {
  std::string name;            ///< "mixer.q.weight" inside a block; "embedding.weight" outside
  std::string component;       ///< "q"; its row in the parameter table
  std::vector<int64_t> shape;  ///< [out, in] for a linear layer, [experts, out, in] for routed experts
  int64_t numel = 0;
  int64_t active = 0;    ///< parameters that one token uses
  bool product = false;  ///< multiplies every token: 2 FLOPs per active element
  Division division;     ///< over tensor-parallel ranks
  int64_t experts = 0;   ///< routed experts, dimension 0 of the shape; 0: not a weight of experts
};

/// The weights of a layer with this block, in forward order. Throws if sizes overflow int64.
std::vector<Weight> block_weights(const ArchSpec& spec, const Block& block);
/// block_weights() of a block in a stack of another width, such as an encoder's.
std::vector<Weight> block_weights(int64_t d_model, const Block& block);

/// Embedding, positions, tables shared by layers, final norm and heads, without those of an encoder. A tied head is not
/// listed.
std::vector<Weight> outer_weights(const ArchSpec& spec);

/// outer_weights() of the encoder of an encoder–decoder, without its "encoder." prefix. A shared token table is not
/// listed.
std::vector<Weight> encoder_outer_weights(const ArchSpec& spec);

/// outer_weights() of the neighbour encoder of a model with retrieval, without its "retrieval." prefix.
std::vector<Weight> neighbour_outer_weights(const ArchSpec& spec);

}  // namespace lamina::arch
