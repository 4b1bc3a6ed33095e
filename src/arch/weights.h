#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// How tensor-parallel ranks divide a weight.
struct Division {
  /// The part of a weight that a rank holds.
  enum class Kind : uint8_t {
    whole,     ///< the whole weight
    divided,   ///< some units along `axis`
    one_rank,  ///< the last rank holds all of it, other ranks nothing: a bias that is added to a sum over ranks
    sections,  ///< several projections in consecutive rows, each divided in its own way
  };
  Kind kind = Kind::whole;
  int axis = 0;       ///< the divided dimension
  int64_t units = 0;  ///< indivisible parts of that dimension: heads, feed-forward columns, vocabulary rows
  /// Groups of adjacent units that stay together if there are enough groups: the query heads of a KV head.
  int64_t groups = 1;
  /// Rows of dimension 0 that are divided as a unit.
  struct Section {
    int64_t rows = 0;
    int64_t units = 0;   ///< units of these rows
    int64_t groups = 1;  ///< groups of these units
    bool operator==(const Section&) const = default;
  };
  std::vector<Section> sections = {};  ///< for the kind `sections`
  bool operator==(const Division&) const = default;
};
/// Several projections in one weight. Each rank has its part of every section, in order.
inline Division divided_sections(std::vector<Division::Section> sections) {
  return {Division::Kind::sections, 0, 0, 1, std::move(sections)};
}
/// Divides output features: the rows of a linear layer's weight, and its bias.
inline Division divided_rows(int64_t units, int64_t groups = 1) {
  return {Division::Kind::divided, 0, units, groups, {}};
}
/// Divides input features. Outputs are then summed over ranks, and one rank adds the bias.
inline Division divided_columns(int64_t units, int64_t groups = 1) {
  return {Division::Kind::divided, 1, units, groups, {}};
}

/// One parameter tensor of a resolved architecture.
struct Weight {
  std::string name;            ///< inside a block "mixer.q.weight", outside "embedding.weight"
  std::string component;       ///< the row that counts it in the parameter table, for example "q"
  std::vector<int64_t> shape;  ///< [out, in] for a linear layer, [experts, out, in] for routed experts
  int64_t numel = 0;
  int64_t active = 0;    ///< parameters that one token uses
  bool product = false;  ///< multiplies every token: 2 FLOPs per active element
  Division division;     ///< how tensor-parallel ranks divide it
  int64_t experts = 0;   ///< number of routed experts, dimension 0 of the shape; 0: not an expert weight
};

/// The weights of a layer with this block, in forward order. Throws if sizes overflow int64.
std::vector<Weight> block_weights(const ArchSpec& spec, const Block& block);
/// block_weights() for a block in a stack of another width, for example an encoder.
std::vector<Weight> block_weights(int64_t d_model, const Block& block);

/// Embedding, positions, tables shared by layers, final norm and heads, without those of an encoder. A tied head is not
/// included.
std::vector<Weight> outer_weights(const ArchSpec& spec);

/// outer_weights() of an encoder, without the prefix "encoder.". A shared token embedding is not included.
std::vector<Weight> encoder_outer_weights(const ArchSpec& spec);

/// outer_weights() of the neighbour encoder of a model with retrieval, without the prefix "retrieval.".
std::vector<Weight> neighbour_outer_weights(const ArchSpec& spec);

}  // namespace lamina::arch
